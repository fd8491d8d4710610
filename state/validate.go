package state

import (
	"fmt"
	"strings"
)

// FieldViolation is one value that is not allowed.
type FieldViolation struct {
	// Field is the path of the field inside the job as its JSON form has it,
	// such as "spec.schedules[1]" or "spec.command.argv".
	Field string
	// Description says what is wrong and what is allowed.
	Description string
}

// Violations is an error that holds everything that is wrong with a value, in
// order of the fields.
type Violations []FieldViolation //nolint:errname // the list is the error

// Error has all violations in one line.
func (v Violations) Error() string {
	parts := make([]string, len(v))
	for i, f := range v {
		parts[i] = f.Field + ": " + f.Description
	}
	return strings.Join(parts, "; ")
}

// Add appends one violation.
func (v *Violations) Add(field, format string, args ...any) {
	*v = append(*v, FieldViolation{Field: field, Description: fmt.Sprintf(format, args...)})
}

// Err is v as an error, nil if there is no violation.
func (v Violations) Err() error {
	if len(v) == 0 {
		return nil
	}
	return v
}

// CheckName says what is wrong with the name of a namespace, job or node; the
// empty string means that it is allowed.
func CheckName(name string) string {
	const allowed = "letters, digits, '-', '_' and '.', beginning with a letter or a digit"
	switch {
	case name == "":
		return fmt.Sprintf("is empty; allowed are 1–%d bytes of %s", MaxNameBytes, allowed)
	case len(name) > MaxNameBytes:
		return fmt.Sprintf("%q has %d bytes; at most %d are allowed", clip(name), len(name), MaxNameBytes)
	case !isAlnum(name[0]):
		return fmt.Sprintf("%q begins with %q; allowed are %s", name, firstRune(name), allowed)
	}
	for i := 0; i < len(name); i++ {
		if !isAlnum(name[i]) && !strings.ContainsRune("-_.", rune(name[i])) {
			return fmt.Sprintf("%q contains %q; allowed are %s", name, firstRune(name[i:]), allowed)
		}
	}
	return ""
}

// CheckReason says what is wrong with the reason that somebody gives for a
// change; the empty string means that it is allowed.
func CheckReason(reason string) string {
	switch {
	case len(reason) > MaxReasonBytes:
		return fmt.Sprintf("has %d bytes; at most %d are allowed", len(reason), MaxReasonBytes)
	case strings.ContainsFunc(reason, isControl):
		return "contains a control character; only printable text, tab and newline are allowed"
	}
	return ""
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// isControl tells control characters other than tab and newline.
func isControl(r rune) bool {
	return r < 0x20 && r != '\t' && r != '\n' || r == 0x7f
}

func firstRune(s string) string {
	for _, r := range s {
		return string(r)
	}
	return ""
}

// clip shortens a user's text so that an error stays readable.
func clip(s string) string {
	const limit = 64
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
