package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// progress is a line on a terminal that says how far a command is. On anything
// else it shows nothing.
type progress struct {
	w     io.Writer
	tty   bool
	shown time.Time
}

const progressEvery = 200 * time.Millisecond

func (p *progress) show(format string, args ...any) {
	if !p.tty || time.Since(p.shown) < progressEvery {
		return
	}
	p.shown = time.Now()
	fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
}

func (p *progress) clear() {
	if p.tty && !p.shown.IsZero() {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// verifyResult is the result as JSON and YAML have it.
type verifyResult struct {
	From       time.Time         `json:"from"`
	To         time.Time         `json:"to"`
	DecidedTo  time.Time         `json:"decidedTo"`
	Jobs       int64             `json:"jobs"`
	Slots      int64             `json:"slots"`
	Runs       int64             `json:"runs"`
	Verdicts   map[string]int64  `json:"verdicts"`
	Terms      []int64           `json:"terms"`
	Violations []verifyViolation `json:"violations"`
	// MoreViolations is how many are left out.
	MoreViolations int               `json:"moreViolations,omitempty"`
	NotChecked     []verifyUnchecked `json:"notChecked"`
	Notes          []string          `json:"notes"`
}

type verifyViolation struct {
	Invariant int    `json:"invariant"`
	Rule      string `json:"rule"`
	Job       string `json:"job,omitempty"`
	Run       string `json:"run,omitempty"`
	Text      string `json:"text"`
}

type verifyUnchecked struct {
	Invariant int `json:"invariant"`
	// Whole is set where nothing of the invariant was checked.
	Whole bool   `json:"whole"`
	Why   string `json:"why"`
}

func (v *verifier) print(w io.Writer) error {
	if v.format == formatTable {
		return v.printTable(w)
	}
	res := verifyResult{
		From: v.from, To: v.to, DecidedTo: v.decided, Jobs: v.jobs, Slots: v.slots, Runs: v.runs,
		Verdicts: v.verdicts, Terms: slices.Sorted(maps.Keys(v.terms)),
		Violations: []verifyViolation{}, MoreViolations: v.more, NotChecked: []verifyUnchecked{}, Notes: append([]string{}, v.notes...),
	}
	for _, x := range v.findings {
		res.Violations = append(res.Violations, verifyViolation{x.Invariant, string(x.Rule), x.Job, x.Run, x.Text})
	}
	for _, u := range v.unchecked {
		res.NotChecked = append(res.NotChecked, verifyUnchecked{u.Invariant, u.Whole, u.Why})
	}
	content, err := json.MarshalIndent(res, "", "  ")
	if err != nil {
		return err
	}
	content = append(content, '\n')
	if v.format == formatYAML {
		if content, err = yaml.JSONToYAML(content); err != nil {
			return err
		}
	}
	_, err = w.Write(content)
	return err
}

func (v *verifier) printTable(w io.Writer) error {
	t := newTable(w)
	t.row("window:", v.from.Format(time.RFC3339)+" to "+v.to.Format(time.RFC3339))
	t.row("decided to:", v.decided.Format(time.RFC3339)+", "+span(v.now.Sub(v.decided))+" behind the cluster's clock")
	t.row("jobs:", strconv.FormatInt(v.jobs, 10))
	t.row("due slots:", strconv.FormatInt(v.slots, 10))
	t.row("runs:", strconv.FormatInt(v.runs, 10))
	t.row("verdicts:", v.verdictText())
	t.row("late:", v.lateText())
	t.row("terms:", strconv.Itoa(len(v.terms)))
	broken := strconv.Itoa(len(v.findings) + v.more)
	if !v.broken() {
		broken = "none"
	}
	t.row("violations:", broken)
	if err := t.flush(); err != nil {
		return err
	}
	if v.broken() {
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		t := newTable(w, "INVARIANT", "RULE", "JOB", "RUN", "WHAT")
		for _, x := range v.findings {
			t.row(strconv.Itoa(x.Invariant), string(x.Rule), x.Job, x.Run, x.Text)
		}
		if err := t.flush(); err != nil {
			return err
		}
		if v.more > 0 {
			if _, err := fmt.Fprintf(w, "and %d more\n", v.more); err != nil {
				return err
			}
		}
	}
	var text strings.Builder
	if len(v.notes) > 0 {
		text.WriteString("\nnotes:\n")
		for _, n := range v.notes {
			fmt.Fprintf(&text, "  %s\n", printable(n))
		}
	}
	if len(v.unchecked) > 0 {
		fmt.Fprintf(&text, "\nnot checked, since it takes logs that a live cluster does not have: invariants %s, and parts of %s\n",
			v.uncheckedText(true), v.uncheckedText(false))
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// uncheckedText are the invariants of which nothing, or a part, was not checked.
func (v *verifier) uncheckedText(whole bool) string {
	var out []string
	for _, u := range v.unchecked {
		if n := strconv.Itoa(u.Invariant); u.Whole == whole && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return strings.Join(out, ", ")
}

// verdictText has the most frequent first.
func (v *verifier) verdictText() string {
	names := slices.SortedFunc(maps.Keys(v.verdicts), func(a, b string) int {
		if n := v.verdicts[b] - v.verdicts[a]; n != 0 {
			return int(n)
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", v.verdicts[name], name)
	}
	return strings.Join(names, ", ")
}

func (v *verifier) lateText() string {
	if len(v.late) == 0 {
		return ""
	}
	slices.Sort(v.late)
	n := len(v.late)
	return fmt.Sprintf("p50 %s, p99 %s, max %s (%d starts)", span(v.late[n/2]), span(v.late[n*99/100]), span(v.late[n-1]), n)
}
