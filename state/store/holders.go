package store

import (
	"sync"

	"github.com/leaderd/leaderd/state"
)

// holder is the dead record that the last run of a job left at its gate.
type holder struct {
	run   state.RunID
	token int64 // the record's ModRevision; 0: none is known
	// over is set where the run is known to have its verdict. That never
	// changes, so a claim need not compare it.
	over bool
}

// same tells whether both are the same record.
func (h holder) same(as holder) bool { return h.run == as.run && h.token == as.token }

// maxHolders bounds what holders remembers: about 10 MB.
const maxHolders = 1 << 17

// holders remembers what finishes of this process left at gates, so that the
// next claim's first try knows what it writes over. It is only a guess: a wrong
// one costs the claim a second try.
type holders struct {
	mu sync.Mutex
	of map[state.JobID]holder
}

func (h *holders) get(id state.JobID) holder {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of[id]
}

func (h *holders) set(id state.JobID, to holder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		h.of = make(map[state.JobID]holder)
	}
	if _, known := h.of[id]; !known && len(h.of) >= maxHolders {
		for other := range h.of {
			delete(h.of, other)
			break
		}
	}
	h.of[id] = to
}
