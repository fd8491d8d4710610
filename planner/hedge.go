package planner

import "time"

// hedgeBudget bounds hedges to a tenth of what is claimed and a hundred beside,
// so that an overloaded store is not loaded further. The zero value is ready.
type hedgeBudget struct {
	tokens float64
	filled time.Time
}

const (
	hedgeReserve = 1000
	hedgeShare   = 0.1
	hedgeFloor   = 100 // a second
)

// earn notes a claim.
func (b *hedgeBudget) earn() { b.tokens = min(b.tokens+hedgeShare, hedgeReserve) }

// giveBack takes the last spend back.
func (b *hedgeBudget) giveBack() { b.tokens = min(b.tokens+1, hedgeReserve) }

// spend tells whether one more hedge is allowed.
func (b *hedgeBudget) spend(now time.Time) bool {
	if b.filled.IsZero() {
		b.tokens = hedgeReserve
	} else if since := now.Sub(b.filled); since > 0 {
		b.tokens = min(b.tokens+since.Seconds()*hedgeFloor, hedgeReserve)
	}
	b.filled = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
