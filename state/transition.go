package state

import "fmt"

// Transition is one legal step of a run.
type Transition struct {
	Name string
	From RunState
	To   RunState
}

// Transitions is the whole table, and the only one: what is not here cannot be
// stored. The From state of each is enforced by the compares of the store's
// transactions.
var Transitions = []Transition{
	{"request", StateNone, StatePending},
	{"queue", StateNone, StatePending},
	{"claim", StateNone, StateRunning},
	{"claim", StatePending, StateRunning},
	{"claim", StateWaiting, StateRunning},
	{"retry", StateRunning, StateWaiting},

	{"finish", StateRunning, StateSucceeded},
	{"finish", StateRunning, StateFailed},
	{"finish", StateRunning, StateTimedOut},
	{"finish", StateRunning, StateCancelled},
	{"finish", StateRunning, StateInterrupted},

	{"lose", StateRunning, StateLost},
	{"give up", StateWaiting, StateLost},
	{"give up", StateWaiting, StateCancelled},
	{"give up", StateWaiting, StateMissed},
	{"give up", StateWaiting, StateTimedOut},

	{"skip", StateNone, StateSkipped},
	{"skip", StatePending, StateSkipped},
	{"miss", StateNone, StateMissed},
	{"miss", StatePending, StateMissed},
	{"cancel", StatePending, StateCancelled},
}

// legal is Transitions as a matrix.
var legal = func() (m [len(stateNames)][len(stateNames)]bool) {
	for _, t := range Transitions {
		m[t.From][t.To] = true
	}
	return m
}()

// CheckTransition answers an error unless a run may go from one state to the
// other in one step.
func CheckTransition(from, to RunState) error {
	if int(from) < len(stateNames) && int(to) < len(stateNames) && legal[from][to] {
		return nil
	}
	return fmt.Errorf("a run cannot go from %s to %s", from, to)
}
