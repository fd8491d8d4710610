package runner

import (
	"fmt"
	"runtime/debug"
	"strings"
	"unicode/utf8"
)

// maxStackBytes bounds what a crash adds to the output.
const maxStackBytes = 8 << 10

// crash is a call that did not return: it panicked or ended its goroutine.
type crash struct {
	value any // of the panic; nil for runtime.Goexit
	stack []byte
}

func (c *crash) Error() string {
	if c.value == nil {
		return "the work ended its goroutine (runtime.Goexit)"
	}
	return fmt.Sprintf("panic: %v", c.value) // fmt survives a value that panics itself
}

// report is the message and the stack.
func (c *crash) report() string {
	return cut(fmt.Sprintf("%s\n\n%s", c.Error(), c.stack), maxStackBytes)
}

// guard calls f on a goroutine of its own, waits for it, and answers how it
// crashed, nil if it returned. A goroutine of its own is what keeps runtime.Goexit
// from the caller.
func guard(f func()) *crash {
	var c *crash
	done := make(chan struct{})
	go func() {
		defer close(done)
		protect(f, func(crashed *crash) { c = crashed })
	}()
	<-done
	return c
}

// protect calls f on this goroutine. If f panics, report is called and protect
// returns; if f ends the goroutine, report is called and the goroutine ends.
func protect(f func(), report func(*crash)) {
	returned := false
	defer func() {
		if returned {
			return
		}
		// A nil panic is a *runtime.PanicNilError; nil here means Goexit.
		v := recover()
		report(&crash{value: v, stack: debug.Stack()})
	}()
	f()
	returned = true
}

// cut shortens s to at most n bytes, between runes.
func cut(s string, n int) string {
	const mark = "…"
	if len(s) <= n {
		return s
	}
	n -= len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.TrimRight(s[:n], "\n") + mark
}
