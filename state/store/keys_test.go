package store

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/state"
)

// name draws hostile parts of keys: what separates, escapes, sorts first or
// last, and ordinary names that are prefixes of each other.
func drawName(rt *rapid.T, label string) string {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"", "a", "a-1", "a.b", "a/b", "/", "%", "%2F", "~", "~~", "\x00", "\xff", "é", "A", "..", "a~", "0"}),
		rapid.StringOfN(rapid.RuneFrom([]rune("ab/%~-.\x00\x7f0")), 0, 4, -1),
		rapid.StringN(0, 6, -1),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 4), func(b []byte) string { return string(b) }),
	).Draw(rt, label)
}

func drawJob(rt *rapid.T, label string) state.JobID {
	return state.JobID{Namespace: drawName(rt, label+" namespace"), Name: drawName(rt, label+" name")}
}

func TestEscapeRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawName(rt, "name")
		e := escape(s)
		require.NotEmpty(rt, e)
		require.NotContains(rt, e, "/")
		require.NotContains(rt, e, gate)
		got, err := unescape(e)
		require.NoError(rt, err)
		require.Equal(rt, s, got)
		other := drawName(rt, "other name")
		require.Equal(rt, s == other, e == escape(other), "%q %q", s, other)
	})
}

func TestUnescapeRefusesBrokenEscapes(t *testing.T) {
	for _, s := range []string{"%2", "a%", "%zz", "%%%", "x%+1"} {
		_, err := unescape(s)
		require.Error(t, err, s)
	}
}

func TestParseJob(t *testing.T) {
	k := keys{DefaultPrefix}
	rapid.Check(t, func(rt *rapid.T) {
		id := drawJob(rt, "job")
		run := state.RunID(drawName(rt, "run"))
		got, more, err := parseJob(strings.TrimPrefix(k.job(id), k.jobs()))
		require.NoError(rt, err)
		require.Equal(rt, id, got)
		require.Empty(rt, more)
		got, more, err = parseJob(strings.TrimPrefix(k.activeShard(id, run, 3), k.active()))
		require.NoError(rt, err)
		require.Equal(rt, id, got)
		require.Equal(rt, escape(string(run))+"/3", more)
	})
	_, _, err := parseJob("alone")
	require.ErrorContains(t, err, "alone")
}

// Everything that is kept of one job lies in ranges that hold nothing of any
// other: what lists or deletes the one never touches the other.
func TestNoJobReachesIntoAnother(t *testing.T) {
	k := keys{DefaultPrefix}
	rapid.Check(t, func(rt *rapid.T) {
		x, y := drawJob(rt, "x"), drawJob(rt, "y")
		if x == y {
			rt.Skip("the same job")
		}
		run, shard := state.RunID(drawName(rt, "run")), rapid.IntRange(0, 200).Draw(rt, "shard")
		of := map[string]string{
			k.activeShard(y, run, shard): k.activeOf(x),
			k.activeGate(y):              k.activeOf(x),
			k.historyRun(y, run):         k.historyOf(x),
			k.version(y, int64(shard)):   k.versionsOf(x),
		}
		for key, prefix := range of {
			require.False(rt, prefix <= key && key < end(prefix), "%q lies in %q", key, prefix)
		}
		for _, of := range []func(state.JobID) string{
			k.job, k.activeGate,
			func(id state.JobID) string { return k.activeShard(id, run, shard) },
			func(id state.JobID) string { return k.historyRun(id, run) },
			func(id state.JobID) string { return k.pendingRun(id, run) },
			func(id state.JobID) string { return k.checkpoint(state.CheckpointRef{Job: id, Run: run, Shard: shard}) },
		} {
			require.NotEqual(rt, of(x), of(y))
		}
	})
}

func TestKindsOfKeysAreApart(t *testing.T) {
	k := keys{DefaultPrefix}
	prefixes := []string{
		k.jobs(), k.nodes(), k.pending(), k.active(), k.history(), k.versions(), k.checkpoints(), k.progress(), k.prefix + "timeline/",
		k.prefix + "leader/",
	}
	for _, a := range prefixes {
		for _, b := range prefixes {
			require.False(t, a != b && a <= b && b < end(a), "%q reaches into %q", a, b)
		}
	}
}

// The gate sorts behind every run of its job, and inside the job's range; the
// runs before it are what an exclusive claim requires to be absent.
func TestGateSortsBehindAllRuns(t *testing.T) {
	k := keys{DefaultPrefix}
	rapid.Check(t, func(rt *rapid.T) {
		id, run := drawJob(rt, "job"), state.RunID(drawName(rt, "run"))
		shard := k.activeShard(id, run, rapid.IntRange(0, 9).Draw(rt, "shard"))
		require.Less(rt, k.activeOf(id), shard)
		require.Less(rt, shard, k.activeGate(id))
		require.Less(rt, k.activeGate(id), end(k.activeOf(id)))
	})
}

func TestNamesAreTheKeys(t *testing.T) {
	k := keys{DefaultPrefix}
	rapid.Check(t, func(rt *rapid.T) {
		l := state.Live{
			Job: drawJob(rt, "job"), Run: state.RunID(drawName(rt, "run")),
			Shard: rapid.IntRange(state.HeaderShard, 1000).Draw(rt, "shard"), Exclusive: rapid.Bool().Draw(rt, "exclusive"),
		}
		want := names{
			job: k.job(l.Job), active: k.activeOf(l.Job), activeEnd: end(k.activeOf(l.Job)), gate: k.activeGate(l.Job),
			live: k.live(&l), history: k.historyRun(l.Job, l.Run),
		}
		if !l.Exclusive {
			want.shards, want.shardsEnd = k.shardsOf(l.Job, l.Run), end(k.shardsOf(l.Job, l.Run))
		}
		require.Equal(rt, want, k.names(&l))
	})
}

func TestRunKeysSortByTime(t *testing.T) {
	k := keys{DefaultPrefix}
	for n := range 100 {
		require.Less(t, k.historyRun(billing, slotRun(n)), k.historyRun(billing, slotRun(n+1)), strconv.Itoa(n))
		trigger := state.TriggerRunID(slotAt(n), 0xffffffff)
		require.Less(t, k.historyRun(billing, slotRun(n)), k.historyRun(billing, trigger))
		require.Less(t, k.historyRun(billing, trigger), k.historyRun(billing, slotRun(n+1)))
	}
	require.Less(t, k.version(billing, 9), k.version(billing, 10))
}
