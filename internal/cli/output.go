package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"sigs.k8s.io/yaml"
)

// Formats of results.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

// format is the --output of a command.
type format string

func (f *format) bind(cmd *cobra.Command) {
	*f = formatTable
	cmd.Flags().VarP(f, "output", "o", "table, json or yaml")
	// It fails only for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]string{formatTable, formatJSON, formatYAML}, cobra.ShellCompDirectiveNoFileComp))
}

var _ pflag.Value = (*format)(nil)

func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "format" }

func (f *format) Set(s string) error {
	switch s {
	case formatTable, formatJSON, formatYAML:
		*f = format(s)
		return nil
	}
	return fmt.Errorf("want %s, %s or %s", formatTable, formatJSON, formatYAML)
}

// printOne prints a single message as JSON or YAML.
func printOne(w io.Writer, f format, m proto.Message) error {
	content, err := marshal(m)
	if err != nil {
		return err
	}
	if f == formatYAML {
		if content, err = yaml.JSONToYAML(content); err != nil {
			return err
		}
	} else {
		content = append(content, '\n')
	}
	_, err = w.Write(content)
	return err
}

// marshal is the canonical JSON form, indented. protojson itself varies its
// spaces from build to build, which would make every script's diff noisy.
func marshal(m proto.Message) ([]byte, error) {
	content, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var compact, out bytes.Buffer
	if err := json.Compact(&compact, content); err != nil {
		return nil, err
	}
	if err := json.Indent(&out, compact.Bytes(), "", "  "); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// listPrinter prints messages one by one: as a JSON array, as YAML documents, or
// by a table's row function.
type listPrinter[M proto.Message] struct {
	w     io.Writer
	f     format
	table *table
	row   func(M) []string
	count int
}

func (p *listPrinter[M]) print(m M) error {
	p.count++
	var err error
	switch p.f {
	case formatJSON:
		lead := ",\n"
		if p.count == 1 {
			lead = "[\n"
		}
		var content []byte
		if content, err = marshal(m); err == nil {
			_, err = fmt.Fprintf(p.w, "%s%s", lead, content)
		}
	case formatYAML:
		if p.count > 1 {
			_, err = fmt.Fprintln(p.w, "---")
		}
		if err == nil {
			err = printOne(p.w, p.f, m)
		}
	default:
		p.table.row(p.row(m)...)
	}
	return err
}

// end closes the output.
func (p *listPrinter[M]) end() error {
	switch {
	case p.f == formatTable:
		return p.table.flush()
	case p.f == formatJSON && p.count == 0:
		_, err := fmt.Fprintln(p.w, "[]")
		return err
	case p.f == formatJSON:
		_, err := fmt.Fprintln(p.w, "\n]")
		return err
	}
	return nil
}

// table aligns columns.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, header ...string) *table {
	t := &table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if header != nil {
		t.row(header...)
	}
	return t
}

// row adds one; the error of writing comes from flush.
func (t *table) row(cells ...string) {
	for i, c := range cells {
		if cells[i] = printable(c); cells[i] == "" {
			cells[i] = "-"
		}
	}
	_, _ = fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t *table) flush() error { return t.w.Flush() }

// printable is text from elsewhere without what could steer the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, strings.Join(strings.Fields(s), " "))
}

// printableOutput is printable for output of runs, which has lines.
func printableOutput(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, strings.ReplaceAll(s, "\r\n", "\n"))
}

// instant is a time in UTC to the second, as slots are.
func instant(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().UTC().Format(time.RFC3339)
}

// span is a duration, to three digits or so.
func span(d time.Duration) string {
	switch a := d.Abs(); {
	case a < time.Millisecond:
		d = d.Round(time.Microsecond)
	case a < 10*time.Second:
		d = d.Round(time.Millisecond)
	case a < time.Minute:
		d = d.Round(100 * time.Millisecond)
	default:
		d = d.Round(time.Second)
	}
	return d.String()
}

func protoSpan(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	return span(d.AsDuration())
}

// printIndented prints a message as YAML, as a part of something larger.
func printIndented(w io.Writer, m proto.Message) error {
	content, err := marshal(m)
	if err != nil {
		return err
	}
	if content, err = yaml.JSONToYAML(content); err != nil {
		return err
	}
	for line := range strings.Lines(string(content)) {
		if _, err := io.WriteString(w, "  "+line); err != nil {
			return err
		}
	}
	return nil
}
