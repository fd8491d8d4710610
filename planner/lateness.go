package planner

import (
	"math/bits"
	"time"

	"github.com/leaderd/leaderd/state"
)

// lateness is a histogram of how late starts were, over the newest minute in
// steps of ten seconds. Its buckets are 16 to a power of two of microseconds, so
// a quantile is at most 6 % off. The zero value is ready.
type lateness struct {
	steps [6]latenessStep
}

type latenessStep struct {
	since int64 // its tenth of a minute
	n     int64
	max   time.Duration
	count [latenessBuckets]uint32
}

const latenessBuckets = 16 * 40

func (l *lateness) add(now time.Time, d time.Duration) {
	since := now.Unix() / 10
	s := &l.steps[since%int64(len(l.steps))]
	if s.since != since {
		*s = latenessStep{since: since}
	}
	s.n++
	s.max = max(s.max, d)
	s.count[latenessBucket(d)]++
}

// latenessBucket and latenessUpper are a floating-point scale with four bits
// behind the leading one.
func latenessBucket(d time.Duration) int {
	us := uint64(max(d, 0).Microseconds())
	if us < 16 {
		return int(us)
	}
	exp := bits.Len64(us) - 5
	return min(16*exp+int(us>>exp), latenessBuckets-1)
}

func latenessUpper(bucket int) time.Duration {
	if bucket < 32 {
		return time.Duration(bucket) * time.Microsecond
	}
	exp := bucket/16 - 1
	return time.Duration((16+bucket%16+1)<<exp-1) * time.Microsecond
}

// summary answers the quantiles of the newest minute.
func (l *lateness) summary(now time.Time) state.Lateness {
	var sum state.Lateness
	var count [latenessBuckets]uint32
	for i := range l.steps {
		s := &l.steps[i]
		if s.n == 0 || now.Unix()/10-s.since >= int64(len(l.steps)) {
			continue
		}
		sum.Starts += s.n
		sum.Max = max(sum.Max, s.max)
		for b, n := range s.count {
			count[b] += n
		}
	}
	if sum.Starts == 0 {
		return sum
	}
	quantile := func(q float64) time.Duration {
		rank := int64(q * float64(sum.Starts))
		for b, n := range count {
			if rank -= int64(n); rank < 0 {
				return min(latenessUpper(b), sum.Max)
			}
		}
		return sum.Max
	}
	sum.P50, sum.P99 = quantile(0.5), quantile(0.99)
	return sum
}
