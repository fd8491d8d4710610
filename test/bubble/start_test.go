package bubble

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPunctualStarts(t *testing.T) {
	bubble(t, func(w *world) {
		j := newJob("a", "* * * * * *")
		w.put(j)
		w.control("c1")
		w.worker("e1", place{})
		w.worker("e2", place{})
		w.awaitLeader(0)
		w.pass(5 * time.Second)
		from := time.Now()
		w.pass(60 * time.Second)
		n := 0
		for _, s := range w.history.of(j) {
			if s.begun.After(from) {
				slot, ok := s.run.Slot()
				require.True(t, ok)
				require.Equal(t, slot, s.begun.UTC(), "no start is late in a store that answers at once")
				n++
			}
		}
		require.Equal(t, 60, n)
	})
}
