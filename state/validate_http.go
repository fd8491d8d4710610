package state

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// maxExpectedCodes bounds HTTP.ExpectedCodes.
const maxExpectedCodes = 64

// ownHeaders are those that the transport of a request sets from its body and
// its connection, whatever the job says.
var ownHeaders = map[string]bool{
	"connection": true, "content-length": true, "trailer": true,
	"transfer-encoding": true, "upgrade": true,
}

func (h *HTTP) validate(v *Violations) {
	if h.Method != "" && !isToken(h.Method) {
		v.Add("spec.http.method", "%q is not an HTTP method; one word such as GET or POST is allowed", clip(h.Method))
	}
	if strings.EqualFold(h.Method, "CONNECT") {
		v.Add("spec.http.method", "CONNECT opens a tunnel, which no job can use")
	}
	if why := checkURL(h.URL); why != "" {
		v.Add("spec.http.url", "%s", why)
	}
	h.checkHeader(v)
	if n := len(h.Body); n > MaxBodyBytes {
		v.Add("spec.http.body", "has %d bytes; at most %d are allowed", n, MaxBodyBytes)
	}
	if n := len(h.ExpectedCodes); n > maxExpectedCodes {
		v.Add("spec.http.expectedCodes", "has %d entries; at most %d are allowed", n, maxExpectedCodes)
	}
	for i, code := range h.ExpectedCodes {
		if code < 200 || code > 599 {
			v.Add(fmt.Sprintf("spec.http.expectedCodes[%d]", i), "%d is outside 200–599", code)
		}
	}
}

func (h *HTTP) checkHeader(v *Violations) {
	const field = "spec.http.headers"
	if n := len(h.Header); n > MaxHTTPHeaders {
		v.Add(field, "has %d entries; at most %d are allowed", n, MaxHTTPHeaders)
	}
	seen := make(map[string]string, len(h.Header))
	total := 0
	for _, name := range sortedKeys(h.Header) {
		value, lower := h.Header[name], strings.ToLower(name)
		total += len(name) + len(value)
		switch {
		case name == "":
			v.Add(field, "has an entry without a name")
		case !isToken(name):
			v.Add(field, "name %q is not allowed; letters, digits and any of !#$%%&'*+-.^_`|~ are", clip(name))
		case strings.HasPrefix(lower, "leaderd-"):
			v.Add(field, "name %q is not allowed; names that begin with Leaderd- are leaderd's", clip(name))
		case ownHeaders[lower]:
			v.Add(field, "name %q is not allowed; it follows from the request itself", clip(name))
		case seen[lower] != "":
			v.Add(field, "names %q and %q are the same header", seen[lower], clip(name))
		}
		seen[lower] = name
		if i := strings.IndexFunc(value, isNoHeaderValue); i >= 0 {
			v.Add(field, "value of %q contains %q, which no header may", clip(name), value[i])
		}
	}
	if total > MaxCommandBytes {
		v.Add(field, "has %d bytes together; at most %d are allowed", total, MaxCommandBytes)
	}
}

func isNoHeaderValue(r rune) bool { return r < 0x20 && r != '\t' || r == 0x7f }

// checkURL says what is wrong with a URL; the empty string is nothing.
func checkURL(text string) string {
	if text == "" {
		return "is empty; an absolute http or https URL is required"
	}
	if n := len(text); n > MaxURLBytes {
		return fmt.Sprintf("has %d bytes; at most %d are allowed", n, MaxURLBytes)
	}
	u, err := url.Parse(text)
	if err != nil {
		// The text itself may hold a password: only the reason is repeated.
		if parse, ok := errors.AsType[*url.Error](err); ok {
			err = parse.Err
		}
		return fmt.Sprintf("cannot be read: %s", err)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Sprintf("has the scheme %q; an absolute http or https URL is required", u.Scheme)
	case u.Hostname() == "":
		return "names no host; an absolute http or https URL is required"
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return fmt.Sprintf("has the port %q; allowed are 1–65535", port)
		}
	}
	return ""
}

// isToken tells RFC 9110's token.
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isAlnum(s[i]) && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(s[i])) {
			return false
		}
	}
	return s != ""
}
