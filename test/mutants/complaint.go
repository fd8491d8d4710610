package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// hung is what is said of a run that took longer than its limit.
const hung = "the run came to no end"

// stated is what package history says of a violation.
var stated = regexp.MustCompile(`^invariant (\d+) \((\w+)\): `)

// A rule is one thing that the simulation's own check can say, which names no
// rules. Theirs are those of docs/verification.md.
type rule struct {
	invariant int
	name      string
	says      *regexp.Regexp
}

func (r *rule) String() string { return fmt.Sprintf("%d %s", r.invariant, r.name) }

var rules = []rule{
	{1, "twice", regexp.MustCompile(`the attempt was claimed before|an attempt before it was at most once|the attempt started before`)},
	{1, "again", regexp.MustCompile(`: the run has a verdict$`)},
	{1, "unclaimed", regexp.MustCompile(`there is no such claim|: before its claim$`)},
	{2, "unaccounted", regexp.MustCompile(`has no record \(generation`)},
	{2, "overdue", regexp.MustCompile(`although its start deadline is long over`)},
	{2, "doubled", regexp.MustCompile(`has \d+ verdicts:`)},
	{2, "undue", regexp.MustCompile(`but it was not due|: the slot is not due$|a range to .* slots, which has|verdict of generation \d+, which never was`)},
	{2, "reasonless", regexp.MustCompile(`without a reason$`)},
	{2, "watermark", regexp.MustCompile(`the watermark (went back|of term|\S+ passed slot|is at)`)},
	{3, "early", regexp.MustCompile(`: before its slot$`)},
	{3, "unfenced", regexp.MustCompile(`: the job does not exist$|: the job is paused$|: of generation \d+, while`)},
	{4, "overlap", regexp.MustCompile(`claim of .*: run \S+ is |: run \S+ on \S+ began at .* while `)},
	{5, "backward", regexp.MustCompile(`a checkpoint went back`)},
	{6, "lost", regexp.MustCompile(`was acknowledged and is not |which does not run it$|vanished without a verdict$`)},
	{6, "changed", regexp.MustCompile(`verdict \S+ was changed$`)},
	{7, "outlived", regexp.MustCompile(`went on after its owner's registration ended`)},
	{7, "disowned", regexp.MustCompile(`: the owner is not registered$`)},
	{8, "harm", regexp.MustCompile(`^panic: |^fatal error: |` + hung)},
	{9, "late", regexp.MustCompile(`is running on \S+, which is gone$`)},
}

// complaints are the rules that a failed run broke, as "invariant rule", in order.
// What the check says and no rule knows is an error: the two have come apart.
func complaints(out string) ([]string, error) {
	var broken []string
	said := false
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "Messages:"))
		if strings.Contains(line, "log of the cluster") {
			break
		}
		switch {
		case strings.HasPrefix(line, "Error:"):
			said = strings.HasSuffix(line, "invariants are broken")
			continue
		case strings.HasPrefix(line, "Test:"), line == "", strings.HasPrefix(line, "… and"):
			continue
		case strings.Contains(line, "_test.go:"), strings.HasPrefix(line, "---"):
			said = false
		}
		known := false
		if m := stated.FindStringSubmatch(line); said && m != nil {
			broken = append(broken, m[1]+" "+m[2])
			known = true
		}
		for _, r := range rules {
			if (said || r.invariant == 8) && r.says.MatchString(line) {
				broken = append(broken, r.String())
				known = true
			}
		}
		if said && !known {
			return nil, fmt.Errorf("the simulation's check says what no rule knows: %s", line)
		}
	}
	return inOrder(broken), nil
}

// inOrder has each rule once, by invariant.
func inOrder(broken []string) []string {
	all := slices.Clone(broken)
	slices.SortFunc(all, func(a, b string) int {
		// Numbers of one digit come before those of two.
		return cmp.Or(cmp.Compare(strings.Index(a, " "), strings.Index(b, " ")), strings.Compare(a, b))
	})
	return slices.Compact(all)
}
