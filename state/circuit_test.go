package state

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var circuitStart = time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)

// feed has runs end in a circuit, one a minute: s, f, l and t for those that succeeded,
// failed, were lost and timed out, c and i for those that were cancelled and interrupted.
func feed(c Circuit, b *CircuitBreaker, ends string) Circuit {
	for i, e := range ends {
		to := map[rune]RunState{
			's': StateSucceeded, 'f': StateFailed, 'l': StateLost, 't': StateTimedOut, 'c': StateCancelled, 'i': StateInterrupted,
		}[e]
		at := circuitStart.Add(time.Duration(i) * time.Minute)
		c, _ = c.After(b, "a", SlotRunID(at), to, at)
	}
	return c
}

func TestCircuitOpens(t *testing.T) {
	for _, row := range []struct {
		breaker CircuitBreaker
		ends    string
		want    CircuitState
	}{
		{CircuitBreaker{Failures: 3}, "ff", CircuitClosed},
		{CircuitBreaker{Failures: 3}, "fff", CircuitOpen},
		{CircuitBreaker{Failures: 3}, "ffsff", CircuitClosed},
		{CircuitBreaker{Failures: 3}, "ftl", CircuitOpen},
		{CircuitBreaker{Failures: 3}, "fcfif", CircuitOpen}, // what says nothing does not count
		{CircuitBreaker{Failures: 1}, "f", CircuitOpen},
		{CircuitBreaker{Rate: 50, Window: 4}, "sff", CircuitClosed}, // too few yet
		{CircuitBreaker{Rate: 50, Window: 4}, "ssff", CircuitOpen},
		{CircuitBreaker{Rate: 50, Window: 4}, "ffssss", CircuitOpen}, // with the fourth run
		{CircuitBreaker{Rate: 75, Window: 4}, "fsfs", CircuitClosed},
		{CircuitBreaker{Rate: 75, Window: 4}, "sssfff", CircuitOpen},
		{CircuitBreaker{Rate: 100, Window: 2}, "fsfsf", CircuitClosed},
		{CircuitBreaker{Failures: 2, Rate: 100, Window: 10}, "ff", CircuitOpen},
	} {
		c := feed(Circuit{}, &row.breaker, row.ends)
		require.Equal(t, row.want, c.State, "%+v %s", row.breaker, row.ends)
	}
}

func TestCircuitProbe(t *testing.T) {
	b := &CircuitBreaker{Failures: 1, CoolDown: 5 * time.Minute}
	open := feed(Circuit{}, b, "f")
	require.Equal(t, circuitStart.Add(5*time.Minute), open.Until)
	require.Contains(t, open.Detail, "1 runs in a row failed, the last of them 20261130T020000Z of a")
	ok, _ := open.Admits(open.Until.Add(-1))
	require.False(t, ok)
	ok, probe := open.Admits(open.Until)
	require.True(t, ok)
	require.True(t, probe)

	half := open.Probed("b", "probe")
	ok, _ = half.Admits(open.Until.Add(time.Hour))
	require.False(t, ok, "one is enough")
	_, changed := half.After(b, "a", "probe", StateSucceeded, open.Until)
	require.False(t, changed, "of another job")
	_, changed = half.After(b, "b", "other", StateSucceeded, open.Until)
	require.False(t, changed)

	at := open.Until.Add(time.Minute)
	closed, changed := half.After(b, "b", "probe", StateSucceeded, at)
	require.True(t, changed)
	require.True(t, closed.Empty())
	for _, bad := range []RunState{StateFailed, StateTimedOut, StateLost} {
		again, _ := half.After(b, "b", "probe", bad, at)
		require.Equal(t, CircuitOpen, again.State)
		require.Equal(t, at.Add(5*time.Minute), again.Until)
	}
	next, _ := half.After(b, "b", "probe", StateCancelled, at)
	require.Equal(t, CircuitOpen, next.State)
	ok, probe = next.Admits(at)
	require.True(t, ok && probe, "the next run is the probe")
}

// What ends changes an open circuit never, and a half-open one by its probe alone; and a
// circuit's text stays short.
func TestCircuitsStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &CircuitBreaker{
			Failures: rapid.IntRange(0, 4).Draw(t, "failures"), Rate: rapid.IntRange(0, 100).Draw(t, "rate"), Window: rapid.IntRange(2, 6).Draw(t, "window"),
		}
		c := Circuit{}
		probe := RunID("")
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			at := circuitStart.Add(time.Duration(i) * time.Minute)
			run := SlotRunID(at)
			if ok, asProbe := c.Admits(at); ok && asProbe {
				require.Equal(t, CircuitOpen, c.State)
				probe = run
				c = c.Probed("a", run)
			}
			was := c
			verdict := rapid.SampledFrom([]RunState{StateSucceeded, StateFailed, StateLost, StateCancelled}).Draw(t, "verdict")
			ended := run
			if rapid.Bool().Draw(t, "the probe") && probe != "" {
				ended = probe
			}
			next, changed := c.After(b, "a", ended, verdict, at)
			require.Equal(t, changed, next != was)
			switch was.State {
			case CircuitOpen:
				require.False(t, changed)
			case CircuitHalfOpen:
				require.Equal(t, ended == was.Probe, changed)
			case CircuitClosed:
				require.NotEqual(t, CircuitHalfOpen, next.State)
				require.LessOrEqual(t, len(next.Outcomes), b.Window)
			}
			c = next
		}
	})
}
