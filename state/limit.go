package state

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limit bounds the runs of all jobs that name it: how many are live at a time (Max), or
// how many start in a time (Rate). Exactly one of both is set.
type Limit struct {
	Name string
	// Cluster limits count the runs of all namespaces.
	Cluster bool
	// Max is how many runs may be live at a time; 0: Rate counts.
	Max  int
	Rate Rate
	// PerKey limits are one for each key that submissions give.
	PerKey bool
}

// Rate is a bucket of at most Burst tokens, to which Runs are added evenly in Per.
type Rate struct {
	Runs  int
	Per   time.Duration
	Burst int // 0 means 1
}

// LimitID names a limit. The namespace is empty for those of the cluster. The key is that
// of runs which count at it, where it is per key and they have one.
type LimitID struct{ Namespace, Name, Key string }

// String is how verdicts and people name it.
func (id LimitID) String() string {
	text := "limit " + id.Name
	if id.Namespace == "" {
		text += " of the cluster"
	}
	if id.Key != "" {
		text += " for key " + id.Key
	}
	return text
}

// ID is the limit's as jobs of a namespace mean it, for a run with a key.
func (l *Limit) ID(namespace, key string) LimitID {
	if l.Cluster {
		namespace = ""
	}
	if !l.PerKey {
		key = ""
	}
	return LimitID{namespace, l.Name, key}
}

// PerKey tells whether any of the limits is.
func PerKey(limits []Limit) bool {
	for i := range limits {
		if limits[i].PerKey {
			return true
		}
	}
	return false
}

// CheckLimitKey answers what is wrong with a key of limits; empty: nothing.
func CheckLimitKey(key string) string {
	switch {
	case len(key) > MaxLimitKey:
		return fmt.Sprintf("has %d bytes; at most %d are allowed", len(key), MaxLimitKey)
	case !utf8.ValidString(key):
		return "is not valid UTF-8"
	case strings.ContainsFunc(key, unicode.IsControl):
		return "has a control character"
	}
	return ""
}

// Hold is a place, from 1, that a run has at a limit, until it has its verdict.
type Hold struct {
	Limit LimitID
	Place int
}

// Bucket is what is known of a rate's tokens: when all will be there if none is taken
// any more, and for when the last one was taken, by the clock of who took it.
type Bucket struct{ Full, Taken time.Time }

// minRateInterval is the least time between two tokens of a rate.
const minRateInterval = 100 * time.Microsecond

// clockSlack is how far ahead of others a clock may be by which a token was taken. A
// bucket from further ahead would keep all others waiting until then.
const clockSlack = time.Minute

// Interval is the time in which one token is added.
func (r *Rate) Interval() time.Duration { return r.Per / time.Duration(max(1, r.Runs)) }

// Take takes a token for a start at an instant. Where there is none, ok is false and
// next is from when on there will be. A bucket that was left by another rate, before an
// edit or by another job, is at most empty by this one; but it stays what it is by the other.
func (r *Rate) Take(b Bucket, at time.Time) (after Bucket, next time.Time, ok bool) {
	burst := max(1, r.Burst)
	full := b.Full
	if empty := b.Taken.Add(time.Duration(burst) * r.Interval()); full.After(empty) {
		full = empty
	}
	believed := !b.Taken.After(at.Add(clockSlack))
	if full.Before(at) || !believed {
		full = at
	}
	// The bucket holds a token while it is full within the time of all but one.
	next = full.Add(-time.Duration(burst-1) * r.Interval())
	if next.After(at) {
		return b, next, false
	}
	after = Bucket{Full: full.Add(r.Interval()), Taken: at}
	if believed && b.Full.After(after.Full) {
		after.Full = b.Full
	}
	return after, at, true
}

// Priority is a class of runs, by which those that wait for room are taken.
type Priority uint8

// Classes. Each comes before all that follow, but for PriorityNormal, which is the
// default.
const (
	PriorityNormal Priority = iota
	PriorityCritical
	PriorityHigh
	PriorityLow
)

// String is the class's name in job files.
func (p Priority) String() string {
	switch p {
	case PriorityNormal:
	case PriorityCritical:
		return "critical"
	case PriorityHigh:
		return "high"
	case PriorityLow:
		return "low"
	}
	return "normal"
}

// Rank is the class's place among all, from 0, which comes first.
func (p Priority) Rank() int {
	switch p {
	case PriorityCritical:
		return 0
	case PriorityHigh:
		return 1
	case PriorityLow:
		return 3
	case PriorityNormal:
	}
	return 2
}

// DefaultWeight is the default of JobSpec.Weight.
const DefaultWeight = 10

func (s *JobSpec) checkLimits(v *Violations) {
	if n := len(s.Limits); n > MaxJobLimits {
		v.Add("spec.limits", "has %d entries; at most %d are allowed", n, MaxJobLimits)
		return
	}
	seen := map[LimitID]int{}
	for i := range s.Limits {
		l := &s.Limits[i]
		field := fmt.Sprintf("spec.limits[%d]", i)
		l.check(v, field)
		id := LimitID{Name: l.Name}
		if !l.Cluster {
			id.Namespace = "-"
		}
		if first, twice := seen[id]; twice && l.Name != "" {
			v.Add(field+".name", "%q is named by spec.limits[%d] already", clip(l.Name), first)
		}
		seen[id] = i
		if gate := s.Gate(); l.PerKey && gate.Queues() {
			v.Add(field+".perKey", "is not allowed where runs wait for one another whatever their keys: overlap must be allow or skip")
		}
	}
	if s.Weight != 0 && (s.Weight < 1 || s.Weight > MaxWeight) {
		v.Add("spec.weight", "%d is outside 1–%d", s.Weight, MaxWeight)
	}
}

// CheckLimits answers Violations of limits that do not come from a spec that was
// checked, or nil.
func CheckLimits(field string, limits []Limit) error {
	var v Violations
	if n := len(limits); n > MaxJobLimits {
		v.Add(field, "has %d entries; at most %d are allowed", n, MaxJobLimits)
		return v
	}
	for i := range limits {
		limits[i].check(&v, fmt.Sprintf("%s[%d]", field, i))
	}
	return v.Err()
}

func (l *Limit) check(v *Violations, field string) {
	if why := CheckName(l.Name); why != "" {
		v.Add(field+".name", "%s", why)
	}
	rated := l.Rate != Rate{}
	switch {
	case rated && l.Max != 0:
		v.Add(field, "has both max and rate; exactly one of them is required")
		return
	case !rated && l.Max == 0:
		v.Add(field, "has neither max nor rate; exactly one of them is required")
		return
	case !rated:
		if l.Max < 1 || l.Max > MaxConcurrent {
			v.Add(field+".max", "%d is outside 1–%d", l.Max, MaxConcurrent)
		}
		return
	}
	r := &l.Rate
	if r.Runs < 1 || r.Runs > MaxRateRuns {
		v.Add(field+".rate.runs", "%d is outside 1–%d", r.Runs, MaxRateRuns)
	}
	if r.Per < time.Millisecond || r.Per > MaxRatePer {
		v.Add(field+".rate.per", "%s is outside %s–%s", r.Per, time.Millisecond, MaxRatePer)
	} else if r.Runs > 0 && r.Interval() < minRateInterval {
		v.Add(field+".rate", "%d runs in %s are one each %s; at most one each %s is allowed", r.Runs, r.Per, r.Interval(), minRateInterval)
	}
	if r.Burst < 0 || r.Burst > MaxRateBurst {
		v.Add(field+".rate.burst", "%d is outside 1–%d", r.Burst, MaxRateBurst)
	}
}
