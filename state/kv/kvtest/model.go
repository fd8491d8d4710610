package kvtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/state/kv"
)

// Model runs random histories on a fresh store that newModel makes and on subject,
// and requires equal answers: results, classes of errors, and in the end,
// in every third run or so, the events of all that happened. subject is used over and over; nothing else may
// write to it meanwhile, nor hold keys above "~".
func Model(t *testing.T, newModel func() (s kv.KV, closeModel func()), subject kv.KV) {
	ctx := t.Context()
	rapid.Check(t, func(rt *rapid.T) {
		model, closeModel := newModel()
		defer closeModel()
		p := &pair{ctx: ctx, model: model, subject: subject}
		p.reset(rt)
		defer p.revokeAll(rt)
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			p.step(rt)
		}
		// Not always: etcd takes a tenth of a second to begin a watch in the past.
		if rapid.IntRange(0, 2).Draw(rt, "compare events") == 0 {
			p.compareEvents(rt)
		}
	})
}

const modelPrefix = "~model/"

// pair is two stores in the same state. Their revisions differ by offset, and their
// leases have ids of their own.
type pair struct {
	ctx            context.Context
	model, subject kv.KV
	offset         int64
	leases         [][2]kv.LeaseID // model's and subject's
	compacted      int64           // model's
}

func (p *pair) reset(rt *rapid.T) {
	// At least one new revision, so that none that the history reads was compacted.
	for range 2 {
		_, err := p.subject.Txn(p.ctx, kv.Txn{Then: []kv.Op{kv.Put(modelPrefix, nil, 0)}})
		require.NoError(rt, err)
		r, err := p.subject.Txn(p.ctx, kv.Txn{Then: []kv.Op{kv.DeleteRange(modelPrefix, "\x00")}})
		require.NoError(rt, err)
		p.offset = r.Revision - 1
	}
}

func (p *pair) revokeAll(rt *rapid.T) {
	for _, l := range p.leases {
		require.NoError(rt, p.subject.Revoke(p.ctx, l[1]))
	}
}

func (p *pair) step(rt *rapid.T) {
	switch rapid.SampledFrom([]string{"txn", "txn", "txn", "txn", "range", "lease", "compact"}).Draw(rt, "step") {
	case "txn":
		x := p.drawTxn(rt, 0)
		y := p.translate(x)
		r1, err1 := p.model.Txn(p.ctx, x)
		r2, err2 := p.subject.Txn(p.ctx, y)
		require.Equal(rt, class(err1), class(err2), "%v\n%v\n%+v", err1, err2, x)
		p.normalize(&r2)
		require.Equal(rt, r1, r2, "%+v", x)
	case "range":
		key, end := drawRange(rt)
		o := kv.RangeOptions{
			Limit:    rapid.Int64Range(0, 3).Draw(rt, "limit"),
			KeysOnly: rapid.Bool().Draw(rt, "keys only"),
			Revision: rapid.Int64Range(0, 20).Draw(rt, "revision"),
		}
		r1, err1 := p.model.Range(p.ctx, key, end, o)
		if o.Revision > 0 {
			o.Revision += p.offset
		}
		r2, err2 := p.subject.Range(p.ctx, key, end, o)
		require.Equal(rt, class(err1), class(err2), "%v\n%v", err1, err2)
		p.normalizeKVs(r2.KVs)
		r2.Revision = p.back(r2.Revision)
		require.Equal(rt, r1, r2)
	case "lease":
		if n := len(p.leases); n > 0 && rapid.Bool().Draw(rt, "revoke") {
			l := p.leases[rapid.IntRange(0, n-1).Draw(rt, "lease")]
			require.NoError(rt, p.model.Revoke(p.ctx, l[0]))
			require.NoError(rt, p.subject.Revoke(p.ctx, l[1]))
			return
		}
		a, _, err := p.model.Grant(p.ctx, time.Hour)
		require.NoError(rt, err)
		b, _, err := p.subject.Grant(p.ctx, time.Hour)
		require.NoError(rt, err)
		p.leases = append(p.leases, [2]kv.LeaseID{a, b})
	case "compact":
		rev := rapid.Int64Range(1, 20).Draw(rt, "compaction")
		err1 := p.model.Compact(p.ctx, rev)
		err2 := p.subject.Compact(p.ctx, rev+p.offset)
		require.Equal(rt, class(err1), class(err2), "%v\n%v", err1, err2)
		if err1 == nil {
			p.compacted = rev
		}
	}
}

func drawKey(rt *rapid.T) string {
	return modelPrefix + rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "key")
}

func drawRange(rt *rapid.T) (key, end string) {
	key = drawKey(rt)
	switch rapid.IntRange(0, 4).Draw(rt, "end") {
	case 0:
		end = "\x00"
	case 1:
		end = drawKey(rt)
	case 2:
		key, end = modelPrefix, kv.PrefixEnd(modelPrefix)
	}
	return key, end
}

func (p *pair) drawLease(rt *rapid.T) kv.LeaseID {
	if len(p.leases) == 0 || rapid.Bool().Draw(rt, "no lease") {
		return 0
	}
	return rapid.SampledFrom(p.leases).Draw(rt, "lease")[0]
}

func (p *pair) drawTxn(rt *rapid.T, depth int) kv.Txn {
	var x kv.Txn
	for range rapid.IntRange(0, 2).Draw(rt, "compares") {
		c := kv.Compare{
			Target:   rapid.SampledFrom([]kv.Target{kv.TargetCreateRevision, kv.TargetModRevision, kv.TargetVersion, kv.TargetValue, kv.TargetLease}).Draw(rt, "target"),
			Relation: rapid.SampledFrom([]kv.Relation{kv.Equal, kv.NotEqual, kv.Less, kv.Greater}).Draw(rt, "relation"),
		}
		c.Key, c.End = drawRange(rt)
		switch c.Target {
		case kv.TargetValue:
			c.Value = rapid.StringN(0, 1, 1).Draw(rt, "value")
		case kv.TargetLease:
			c.Int = int64(p.drawLease(rt))
			if c.Relation > kv.NotEqual {
				c.Relation = kv.Equal // the order of ids is each store's own
			}
		default:
			c.Int = rapid.Int64Range(0, 20).Draw(rt, "number")
		}
		x.If = append(x.If, c)
	}
	x.Then, x.Else = p.drawOps(rt, depth), p.drawOps(rt, depth)
	return x
}

func (p *pair) drawOps(rt *rapid.T, depth int) []kv.Op {
	kinds := []string{"get", "put", "put", "put", "delete"}
	if depth < 2 {
		kinds = append(kinds, "txn", "txn")
	}
	var ops []kv.Op
	for range rapid.IntRange(0, 3).Draw(rt, "operations") {
		switch rapid.SampledFrom(kinds).Draw(rt, "operation") {
		case "get":
			key, end := drawRange(rt)
			op := kv.GetRange(key, end, rapid.Int64Range(0, 2).Draw(rt, "limit"))
			op.Keys = rapid.Bool().Draw(rt, "keys only")
			ops = append(ops, op)
		case "put":
			value := []byte(rapid.StringN(0, 1, 1).Draw(rt, "value"))
			ops = append(ops, kv.Put(drawKey(rt), value, p.drawLease(rt)))
		case "delete":
			key, end := drawRange(rt)
			ops = append(ops, kv.DeleteRange(key, end))
		case "txn":
			inner := p.drawTxn(rt, depth+1)
			ops = append(ops, kv.Nested(&inner))
		}
	}
	return ops
}

// translate is x with the subject's revisions and leases.
func (p *pair) translate(x kv.Txn) kv.Txn {
	y := kv.Txn{Then: p.translateOps(x.Then), Else: p.translateOps(x.Else)}
	for _, c := range x.If {
		switch {
		case c.Target == kv.TargetLease:
			c.Int = int64(p.lease(kv.LeaseID(c.Int)))
		case c.Target <= kv.TargetModRevision && c.Int > 0:
			c.Int += p.offset
		}
		y.If = append(y.If, c)
	}
	return y
}

func (p *pair) translateOps(ops []kv.Op) []kv.Op {
	var out []kv.Op
	for _, op := range ops {
		op.Lease = p.lease(op.Lease)
		if op.Txn != nil {
			inner := p.translate(*op.Txn)
			op.Txn = &inner
		}
		out = append(out, op)
	}
	return out
}

// lease is the subject's id of the model's lease.
func (p *pair) lease(id kv.LeaseID) kv.LeaseID {
	for _, l := range p.leases {
		if l[0] == id {
			return l[1]
		}
	}
	return id
}

// back is the model's number of the subject's revision.
func (p *pair) back(rev int64) int64 {
	if rev == 0 {
		return 0
	}
	return rev - p.offset
}

// normalize puts the model's revisions and leases into the subject's answer.
func (p *pair) normalize(r *kv.TxnResult) {
	r.Revision = p.back(r.Revision)
	for i := range r.Results {
		p.normalizeKVs(r.Results[i].KVs)
		if r.Results[i].Txn != nil {
			p.normalize(r.Results[i].Txn)
		}
	}
}

func (p *pair) normalizeKVs(kvs []kv.KeyValue) {
	for i := range kvs {
		p.normalizeKV(&kvs[i])
	}
}

func (p *pair) normalizeKV(k *kv.KeyValue) {
	k.CreateRevision, k.ModRevision = p.back(k.CreateRevision), p.back(k.ModRevision)
	for _, l := range p.leases {
		if l[1] == k.Lease {
			k.Lease = l[0]
		}
	}
}

// compareEvents watches both from a revision on that still can be.
func (p *pair) compareEvents(rt *rapid.T) {
	last := kv.Txn{Then: []kv.Op{kv.Put(modelPrefix+"last", nil, 0)}}
	r, err := p.model.Txn(p.ctx, last)
	require.NoError(rt, err)
	_, err = p.subject.Txn(p.ctx, last)
	require.NoError(rt, err)

	first := max(p.compacted, 2)
	from := rapid.Int64Range(first, max(first, r.Revision)).Draw(rt, "from")
	want := p.events(rt, p.model, from, r.Revision)
	got := p.events(rt, p.subject, from+p.offset, r.Revision+p.offset)
	for i := range got {
		p.normalizeKV(&got[i].KV)
	}
	require.Equal(rt, want, got)

	if p.compacted > 1 {
		for _, s := range []struct {
			kv   kv.KV
			from int64
		}{{p.model, p.compacted - 1}, {p.subject, p.compacted - 1 + p.offset}} {
			w, err := s.kv.Watch(p.ctx, modelPrefix, kv.PrefixEnd(modelPrefix), s.from)
			require.NoError(rt, err)
			_, err = w.Next(p.ctx)
			w.Close()
			require.ErrorIs(rt, err, kv.ErrCompacted)
		}
	}
}

func (p *pair) events(rt *rapid.T, s kv.KV, from, to int64) []kv.Event {
	w, err := s.Watch(p.ctx, modelPrefix, kv.PrefixEnd(modelPrefix), from)
	require.NoError(rt, err)
	defer w.Close()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	var events []kv.Event
	for {
		b, err := w.Next(ctx)
		require.NoError(rt, err)
		events = append(events, b.Events...)
		if n := len(events); n > 0 && events[n-1].KV.ModRevision >= to {
			require.Equal(rt, to, events[n-1].KV.ModRevision, fmt.Sprint(events))
			return events
		}
	}
}
