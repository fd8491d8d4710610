package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/leaderd/leaderd/internal/history"
)

// hung is what is said of a run that took longer than its limit.
const hung = "the run came to no end"

// stated is what package history says of a violation; the simulation's own check
// says it in the same form.
var stated = regexp.MustCompile(`^invariant (\d+) \((\w+)\): `)

// harm is what the run of a process that did not end well says.
var harm = regexp.MustCompile(`^panic: |^fatal error: |` + hung)

// complaints are the rules that a failed run broke, as "invariant rule", in order.
// A violation that names no rule is an error.
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
		m := stated.FindStringSubmatch(line)
		switch {
		case harm.MatchString(line):
			broken = append(broken, "8 "+string(history.Harm))
		case said && m != nil:
			broken = append(broken, m[1]+" "+m[2])
		case said:
			return nil, fmt.Errorf("the simulation's check names no rule: %s", line)
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
