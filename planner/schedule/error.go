package schedule

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnsupported marks a text that is well formed in a known cron dialect but
// not supported here. A *ParseError for such a text wraps it.
var ErrUnsupported = errors.New("unsupported")

// ParseError says why the text of a schedule was refused.
type ParseError struct {
	// Spec is the whole text, shortened if it is very long.
	Spec string
	// Field names the part at fault: "second", "minute", "hour", "day of month",
	// "month", "day of week", "zone", "interval", "instant", "anchor"; empty when
	// the expression as a whole is at fault.
	Field string
	// Text is the part at fault as it was written; may be empty.
	Text string
	// Reason says what is wrong and what is allowed.
	Reason string
	// Hint says what to write instead; empty if nothing is likely.
	Hint string
	// Err is ErrUnsupported or the underlying error; may be nil.
	Err error
}

// Error returns all parts in one line.
func (e *ParseError) Error() string {
	var b strings.Builder
	if e.Spec != "" || e.Field != "zone" { // a zone may be looked up alone
		fmt.Fprintf(&b, "schedule %q: ", e.Spec)
	}
	if e.Field != "" {
		b.WriteString(e.Field)
		if e.Text != "" {
			fmt.Fprintf(&b, " %q", e.Text)
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Reason)
	if e.Hint != "" {
		b.WriteString("; ")
		b.WriteString(e.Hint)
	}
	return b.String()
}

// Unwrap returns Err.
func (e *ParseError) Unwrap() error { return e.Err }

// clip shortens user text so that an error stays readable.
func clip(s string) string {
	const limit = 80
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}

// fault is a ParseError in the making: the parts below Parse do not know the spec.
func fault(field, text, reason, hint string) *ParseError {
	return &ParseError{Field: field, Text: clip(text), Reason: reason, Hint: hint}
}

func unsupported(field, text, what string) *ParseError {
	e := fault(field, text, what+" is unsupported", "")
	e.Err = ErrUnsupported
	return e
}
