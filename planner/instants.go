package planner

import (
	"time"
)

func micros(us int64) time.Time { return time.UnixMicro(us).UTC() }

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
