package history_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/internal/history"
)

func TestOwes(t *testing.T) {
	m := good()
	m.remove("a", 4)
	m.Jobs["c"] = []history.Version{{Revision: 9, Effective: at(0), Schedules: []string{"what"}}}
	slots := map[string][]float64{}
	for _, o := range history.Owes(m.Facts, at(2), at(9)) {
		slots[o.Job] = append(slots[o.Job], o.Slot.Sub(t0).Seconds())
		require.Equal(t, o.Slot, o.At)
		switch o.Job {
		case "a":
			require.Equal(t, time.Minute, o.Deadline)
			require.Equal(t, o.Slot.Equal(at(4)), o.Decided == 0, o.Slot)
		case "b":
			require.Zero(t, o.Deadline)
			require.NotZero(t, o.Decided, o.Slot)
		}
	}
	require.Equal(t, map[string][]float64{
		"a": {2, 3, 4, 5, 9}, // a pause from 5.5 to 8.5
		"b": {2, 4, 6, 9},    // an edit at 4.5
	}, slots)
}

func TestOwesCountsJitter(t *testing.T) {
	f := &history.Facts{Jobs: map[string][]history.Version{
		"a": {{Revision: 1, Effective: at(0), Schedules: []string{"*/10 * * * * *"}, Jitter: 5 * time.Second}},
	}}
	owed := history.Owes(f, at(1), at(60))
	require.Len(t, owed, 6)
	late := 0
	for _, o := range owed {
		require.LessOrEqual(t, o.At.Sub(o.Slot), 5*time.Second)
		if o.At.After(o.Slot) {
			late++
		}
	}
	require.NotZero(t, late)
}
