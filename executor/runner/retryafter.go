package runner

import (
	"net/http"
	"strconv"
	"time"

	"github.com/leaderd/leaderd/state"
)

// retryAfter is how long the server asks to be left alone: the Retry-After of an
// answer 429 or 503, in seconds or as a date, at most state.MaxRetryAfter. 0: it does
// not ask.
func retryAfter(resp *http.Response, now time.Time) time.Duration {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	text := resp.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, state.MaxRetryAfter)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	// The date is by the server's clock, which its own Date tells.
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), state.MaxRetryAfter)
}
