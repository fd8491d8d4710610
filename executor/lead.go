package executor

import "time"

const (
	minLead     = 20 * time.Millisecond
	maxBaseLead = time.Second
	// maxLead bounds how long before its slot an entry is claimed at most. A claim
	// binds the run to this executor, and from then on an edit or a pause comes
	// too late.
	maxLead = 3 * time.Second
	// loaded is from how many claims in flight on the journal is taken to work at
	// its full rate.
	loaded = 64
	// sampleTime is over how long the rate is measured.
	sampleTime = 50 * time.Millisecond
	// stuckAfter is for how long none of the claims in flight was answered, for the
	// journal to be taken as one that answers none.
	stuckAfter = time.Second
	// assumedRate stands for the journal's rate until there was load, in claims a
	// second.
	assumedRate = 10_000
)

// lead decides how long before its slot an entry's claim begins: four times what
// a claim takes, plus the time in which the journal gets through all that is due
// soon. Its methods take the time, in nanoseconds of a clock that is never set and never 0.
type lead struct {
	latency  float64 // of a claim, in nanoseconds; moving average
	rate     float64 // claims a second while loaded; moving average
	inFlight int
	answered int64 // when the last answer came, or the first of those in flight went out
	since    int64 // when the sample began; 0: not loaded
	done     int   // claims answered in the sample
}

func newLead() lead { return lead{latency: float64(minLead) / 4, rate: assumedRate} }

// begin counts a claim that goes out.
func (l *lead) begin(now int64) {
	if l.inFlight == 0 {
		l.answered = now
	}
	if l.inFlight++; l.inFlight == loaded {
		l.since, l.done = now, 0
	}
}

// end counts an answer that took took.
func (l *lead) end(now int64, took time.Duration) {
	l.inFlight--
	l.answered = now
	l.latency += (float64(took) - l.latency) / 8
	if l.since == 0 {
		return
	}
	l.done++
	if spent := now - l.since; spent >= int64(sampleTime) {
		rate := float64(l.done) * float64(time.Second) / float64(spent)
		l.rate += (rate - l.rate) / 4
		l.since, l.done = now, 0
	}
	if l.inFlight < loaded {
		l.since = 0
	}
}

// stuck tells whether claims are in flight, and none of them was answered for long.
func (l *lead) stuck(now int64) bool { return l.inFlight > 0 && now-l.answered >= int64(stuckAfter) }

// value is the lead while backlog entries are due within maxLead.
func (l *lead) value(backlog int) time.Duration {
	base := min(max(time.Duration(4*l.latency), minLead), maxBaseLead)
	queue := time.Duration(float64(backlog) / max(l.rate, 1) * float64(time.Second))
	return min(base+max(queue, 0), maxLead)
}
