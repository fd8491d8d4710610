package state

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The parts of a range are the range: in order, without gap or overlap, and as even as
// they can be.
func TestPartsOfARange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 50).Draw(t, "shards")
		from := rapid.Int64Range(math.MinInt64, math.MaxInt64-1).Draw(t, "from")
		size := rapid.Int64Range(0, math.MaxInt64-1).Draw(t, "size")
		if rapid.Bool().Draw(t, "few") {
			size %= 60
		}
		if from > math.MaxInt64-size {
			from = math.MaxInt64 - size
		}
		s := &Split{Shards: Shards{Count: n, Range: &ShardRange{from, from + size}}}
		next, least, most := from, int64(math.MaxInt64), int64(0)
		for i := range n {
			p := s.Part(i)
			require.True(t, p.HasRange)
			require.Equal(t, next, p.Range.From)
			length := p.Range.To - p.Range.From + 1
			require.GreaterOrEqual(t, length, int64(0))
			least, most = min(least, length), max(most, length)
			next = p.Range.To + 1
		}
		require.Equal(t, from+size, next-1)
		require.LessOrEqual(t, most-least, int64(1))
	})
}

func TestShardsAreChecked(t *testing.T) {
	many := make([]map[string]string, 2)
	for name, x := range map[string]struct {
		s    Shards
		want string
	}{
		"none":       {Shards{}, "spec.shards: says nothing of how many"},
		"too many":   {Shards{Count: 1001}, "spec.shards.count: 1001 is outside 1–1000"},
		"both":       {Shards{Count: 3, Params: many}, "spec.shards.params: has 2 entries, but count is 3"},
		"backwards":  {Shards{Count: 2, Range: &ShardRange{5, 4}}, "spec.shards.range: ends at 4, before it begins, at 5"},
		"endless":    {Shards{Count: 2, Range: &ShardRange{math.MinInt64, math.MaxInt64}}, "spec.shards.range: has more than"},
		"needed":     {Shards{Count: 2, MinSuccess: 3}, "spec.shards.minSuccess: 3 is outside 1–2"},
		"everywhere": {Shards{Count: 2, Broadcast: true}, "spec.shards.broadcast: makes one shard for each"},
		"name":       {Shards{Params: []map[string]string{{"a-b": "1"}}}, `spec.shards.params[0]: name "a-b" is not allowed`},
		"case":       {Shards{Params: []map[string]string{{"a": "1", "A": "2"}}}, "differ in case alone"},
		"fine":       {Shards{Params: many, MinSuccess: 1, Range: &ShardRange{1, 9}}, ""},
		"each node":  {Shards{Broadcast: true, MinSuccess: 7}, ""},
		"listed":     {Shards{Dynamic: &Listing{}, MinSuccess: 1000, StopOnFailure: true}, ""},
		"two ways":   {Shards{Dynamic: &Listing{}, Count: 2}, "spec.shards.dynamic: has each run list its shards, and stands beside no count"},
		"most":       {Shards{Dynamic: &Listing{Max: 1001}}, "spec.shards.dynamic.max: 1001 is outside 1–1000"},
		"of those":   {Shards{Dynamic: &Listing{Max: 3}, MinSuccess: 4}, "spec.shards.minSuccess: 4 is outside 1–3"},
		"targets":    {Shards{Dynamic: &Listing{Command: &Command{}, HTTP: &HTTP{}}}, "spec.shards.dynamic: has both command and http"},
		"its target": {Shards{Dynamic: &Listing{HTTP: &HTTP{URL: "ftp://x"}}}, "spec.shards.dynamic.http.url"},
	} {
		t.Run(name, func(t *testing.T) {
			var v Violations
			x.s.check(&v, &JobSpec{})
			if x.want == "" {
				require.NoError(t, v.Err())
			} else {
				require.ErrorContains(t, v.Err(), x.want)
			}
		})
	}
}
