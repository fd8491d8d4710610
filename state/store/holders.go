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

// sight says that a job had a revision when some job was changed last.
type sight struct{ job, changed int64 }

// maxHolders bounds what holders remembers: about 15 MB.
const maxHolders = 1 << 17

// holders remembers what claims and finishes of this process left at gates, so
// that the next claim's first try knows what it writes over, and of which jobs it
// is known that they have not changed. What is at a gate is only a guess: a wrong
// one costs the claim a second try. A sight is true.
type holders struct {
	mu sync.Mutex
	of map[state.JobID]*memory
}

type memory struct {
	holder
	sight
}

func (h *holders) get(id state.JobID) holder {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.of[id]; m != nil {
		return m.holder
	}
	return holder{}
}

// unchanged tells whether the job is known to have had a revision at a change.
func (h *holders) unchanged(id state.JobID, job, changed int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.of[id]
	return m != nil && changed != 0 && m.sight == sight{job: job, changed: changed}
}

// set remembers what is at a job's gate.
func (h *holders) set(id state.JobID, to holder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at(id).holder = to
}

// note remembers what was seen of a job and, unless its token is 0, what is at
// its gate.
func (h *holders) note(id state.JobID, to holder, seen sight) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := h.at(id)
	m.sight = seen
	if to.token != 0 {
		m.holder = to
	}
}

func (h *holders) at(id state.JobID) *memory {
	if m := h.of[id]; m != nil {
		return m
	}
	if h.of == nil {
		h.of = make(map[state.JobID]*memory)
	}
	if len(h.of) >= maxHolders {
		for other := range h.of {
			delete(h.of, other)
			break
		}
	}
	m := &memory{}
	h.of[id] = m
	return m
}
