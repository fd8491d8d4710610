package store

import (
	"strconv"

	"github.com/leaderd/leaderd/state"
)

// names are the keys that a claim or a finish of one shard is about, all cut
// from one string: requests are made often, and keys are most of what they
// would allocate.
type names struct {
	job       string
	active    string // the prefix of the job's live records
	activeEnd string // the end of their range
	gate      string
	shards    string // the prefix of the run's own live records; empty where the gate is it
	shardsEnd string // the end of their range
	live      string // the shard's own record: the gate where that is exclusive
	history   string
}

func (k keys) names(l *state.Live) names {
	var space [512]byte
	b := append(append(space[:0], k.prefix...), "jobs/"...)
	part := len(b)
	b = append(appendEscaped(b, l.Job.Namespace), '/')
	b = appendEscaped(b, l.Job.Name)
	job := len(b)
	begin := func(kind string) {
		b = append(append(append(b, k.prefix...), kind...), b[part:job]...)
	}
	begin("active/")
	b = append(append(b, '/'), gate...)
	gateEnd := len(b)
	begin("active/")
	b = append(b, '/'+1)
	activeEnd := len(b)
	begin("history/")
	b = append(b, '/')
	run := len(b)
	b = appendEscaped(b, string(l.Run))
	history := len(b)
	shards := len(b)
	if !l.Exclusive {
		begin("active/")
		b = append(append(b, '/'), b[run:history]...)
		b = append(b, '/'+1)
		shardsEnd := len(b)
		begin("active/")
		b = append(append(b, '/'), b[run:history]...)
		b = append(b, '/')
		shard := len(b)
		if l.Shard == state.HeaderShard {
			b = append(b, gate...)
		} else {
			b = strconv.AppendInt(b, int64(l.Shard), 10)
		}
		s := string(b)
		return names{
			job:       s[:job],
			active:    s[job : gateEnd-len(gate)],
			activeEnd: s[gateEnd:activeEnd],
			gate:      s[job:gateEnd],
			shards:    s[shardsEnd:shard],
			shardsEnd: s[shards:shardsEnd],
			live:      s[shardsEnd:],
			history:   s[activeEnd:history],
		}
	}
	s := string(b)
	return names{
		job:       s[:job],
		active:    s[job : gateEnd-len(gate)],
		activeEnd: s[gateEnd:activeEnd],
		gate:      s[job:gateEnd],
		live:      s[job:gateEnd],
		history:   s[activeEnd:history],
	}
}
