package sim

import (
	"fmt"
	"hash/fnv"
)

// digest folds all that was seen of a run into one number: what the nodes
// logged, every event of the store, and every piece of work. Two runs with one
// digest did the same.
func (w *world) digest() uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintln(h, w.log.sum())
	for _, e := range w.audit.all() {
		_, _ = fmt.Fprintln(h, e.revision, e.at.UnixNano(), e.KV.Key, e.Deleted)
		_, _ = h.Write(e.KV.Value)
	}
	for _, s := range w.history.all() {
		_, _ = fmt.Fprintln(h, s.job, s.run, s.attempt, s.token, s.node, s.begun.UnixNano(), s.ended.UnixNano(), s.state)
	}
	return h.Sum64()
}
