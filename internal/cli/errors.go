package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// apiError is an error of the API, and which address was asked for how long.
type apiError struct {
	err     error
	address string
	timeout fmt.Stringer
}

func (e *apiError) Error() string { return strings.Join(e.lines(), "; ") }
func (e *apiError) Unwrap() error { return e.err }

// explain is an error in lines for people: one for each thing that is wrong.
func explain(err error) []string {
	if _, ok := errors.AsType[silentError](err); ok {
		return nil
	}
	if api, ok := errors.AsType[*apiError](err); ok {
		lines := api.lines()
		// What was added on the way up stands before each, or behind all.
		prefix, suffix, _ := strings.Cut(err.Error(), strings.Join(lines, "; "))
		for i := range lines {
			lines[i] = prefix + lines[i]
		}
		lines[len(lines)-1] += suffix
		return lines
	}
	return strings.Split(err.Error(), "\n")
}

func (e *apiError) lines() []string {
	st, ok := status.FromError(e.err)
	if !ok {
		return []string{e.err.Error()}
	}
	known := false
	var violations []string
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				violations = append(violations, v.GetField()+": "+v.GetDescription())
			}
		case *errdetails.ErrorInfo:
			known = true
		}
	}
	switch {
	case len(violations) > 0:
		return violations
	case known: // leaderd's own words
		return []string{oneLine(st.Message())}
	}
	switch st.Code() {
	case codes.Unavailable:
		return []string{fmt.Sprintf("no control node answers at %s: %s", e.address, lastPart(st.Message()))}
	case codes.DeadlineExceeded:
		return []string{fmt.Sprintf("no answer from %s within %s", e.address, e.timeout)}
	case codes.Canceled:
		return []string{"interrupted"}
	case codes.Unimplemented:
		return []string{fmt.Sprintf("%s does not know this request: is it a leaderd of this version?", e.address)}
	}
	return []string{oneLine(st.Message())}
}

// lastPart is the innermost cause in a message of the transport.
func lastPart(message string) string {
	parts := strings.Split(strings.TrimSuffix(oneLine(message), `"`), ": ")
	return strings.TrimSuffix(parts[len(parts)-1], `"`)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// isBadRequest tells whether the API refused a value.
func isBadRequest(err error) bool {
	api, ok := errors.AsType[*apiError](err)
	return ok && status.Code(api.err) == codes.InvalidArgument
}

// interrupted tells whether somebody asked the command to end.
func interrupted(err error) bool {
	api, ok := errors.AsType[*apiError](err)
	return errors.Is(err, context.Canceled) || ok && status.Code(api.err) == codes.Canceled
}

// isConflict tells whether the error is about this one job, though nothing in the
// request is wrong: it was changed meanwhile, or is not there.
func isConflict(err error) bool {
	api, ok := errors.AsType[*apiError](err)
	if !ok {
		return false
	}
	switch status.Code(api.err) {
	case codes.Aborted, codes.NotFound, codes.FailedPrecondition:
		return true
	}
	return false
}
