package runner

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, after, date string
		status            int
		want              time.Duration
	}{
		{"seconds", "120", "", 503, 2 * time.Minute},
		{"too many requests", "7", "", 429, 7 * time.Second},
		{"at most a day", "4000000000", "", 429, 24 * time.Hour},
		{"more than any number", "99999999999999", "", 429, 0},
		{"another status", "120", "", 500, 0},
		{"none", "", "", 503, 0},
		{"negative", "-5", "", 503, 0},
		{"a date", now.Add(90 * time.Second).Format(http.TimeFormat), "", 503, 90 * time.Second},
		{"a date by a clock that is wrong", now.Add(90*time.Second + time.Hour).Format(http.TimeFormat), now.Add(time.Hour).Format(http.TimeFormat), 503, 90 * time.Second},
		{"a date that is past", now.Add(-time.Hour).Format(http.TimeFormat), "", 503, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			resp := &http.Response{StatusCode: c.status, Header: http.Header{}}
			resp.Header.Set("Retry-After", c.after)
			resp.Header.Set("Date", c.date)
			require.Equal(t, c.want, retryAfter(resp, now))
		})
	}
}
