package planner

import (
	"time"
)

func micros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// instant is micros of what may be no instant.
func instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return micros(us)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
