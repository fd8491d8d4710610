package etcdkv

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderd/leaderd/state/kv"
)

var relations = [...]pb.Compare_CompareResult{
	kv.Equal:    pb.Compare_EQUAL,
	kv.NotEqual: pb.Compare_NOT_EQUAL,
	kv.Less:     pb.Compare_LESS,
	kv.Greater:  pb.Compare_GREATER,
}

// Slots hold one message with all that mostly hangs below it, so that a transaction of
// many operations costs a handful of allocations and not several for each.
type (
	compareSlot struct {
		msg    pb.Compare
		create pb.Compare_CreateRevision
		mod    pb.Compare_ModRevision
	}
	getSlot struct {
		msg pb.RequestOp
		of  pb.RequestOp_RequestRange
		req pb.RangeRequest
	}
	putSlot struct {
		msg pb.RequestOp
		of  pb.RequestOp_RequestPut
		req pb.PutRequest
	}
	deleteSlot struct {
		msg pb.RequestOp
		of  pb.RequestOp_RequestDeleteRange
		req pb.DeleteRangeRequest
	}
	txnSlot struct {
		msg pb.RequestOp
		of  pb.RequestOp_RequestTxn
		req pb.TxnRequest
	}
)

// counts are how many of each a transaction needs.
type counts struct {
	compares, ops, gets, puts, deletes, txns, bytes int
}

func (n *counts) add(t *kv.Txn) error {
	n.compares += len(t.If)
	for i := range t.If {
		c := &t.If[i]
		if c.Target > kv.TargetLease || int(c.Relation) >= len(relations) {
			return fmt.Errorf("compare of %q: target or relation unknown: %w", c.Key, kv.ErrInvalid)
		}
		n.bytes += len(c.Key) + len(c.End) + len(c.Value)
	}
	for _, ops := range [2][]kv.Op{t.Then, t.Else} {
		n.ops += len(ops)
		for i := range ops {
			op := &ops[i]
			n.bytes += len(op.Key) + len(op.End)
			switch op.Kind {
			case kv.OpGet:
				n.gets++
			case kv.OpPut:
				n.puts++
			case kv.OpDelete:
				n.deletes++
			case kv.OpTxn:
				n.txns++
				if op.Txn != nil {
					if err := n.add(op.Txn); err != nil {
						return err
					}
				}
			default:
				return fmt.Errorf("operation %d unknown: %w", op.Kind, kv.ErrInvalid)
			}
		}
	}
	return nil
}

// encoder deals out the slots.
type encoder struct {
	compares []compareSlot
	gets     []getSlot
	puts     []putSlot
	deletes  []deleteSlot
	txns     []txnSlot
	comparep []*pb.Compare
	opp      []*pb.RequestOp
	text     []byte
}

func take[T any](slots *[]T) *T {
	s := &(*slots)[0]
	*slots = (*slots)[1:]
	return s
}

// row deals out a slice of n.
func row[T any](slots *[]T, n int) []T {
	r := (*slots)[:n:n]
	*slots = (*slots)[n:]
	return r
}

// bytes copies s; nil when empty.
func (e *encoder) bytes(s string) []byte {
	if s == "" {
		return nil
	}
	at := len(e.text)
	e.text = append(e.text, s...)
	return e.text[at:len(e.text):len(e.text)]
}

// encode is t as etcd's request. The values of puts are not copied.
func encode(t *kv.Txn) (*pb.TxnRequest, error) {
	var n counts
	if err := n.add(t); err != nil {
		return nil, err
	}
	req := &pb.TxnRequest{}
	if len(t.Then) == 0 && len(t.Else) == 0 {
		// etcd takes it for a local read: see doc.go.
		req.Success = []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{}}}}
	}
	e := encoder{
		compares: make([]compareSlot, n.compares),
		gets:     make([]getSlot, n.gets),
		puts:     make([]putSlot, n.puts),
		deletes:  make([]deleteSlot, n.deletes),
		txns:     make([]txnSlot, n.txns),
		comparep: make([]*pb.Compare, n.compares),
		opp:      make([]*pb.RequestOp, n.ops),
		text:     make([]byte, 0, n.bytes),
	}
	e.txn(t, req)
	return req, nil
}

func (e *encoder) txn(t *kv.Txn, out *pb.TxnRequest) {
	out.Compare = row(&e.comparep, len(t.If))
	for i := range t.If {
		out.Compare[i] = e.compare(&t.If[i])
	}
	if len(t.Then) > 0 {
		out.Success = e.ops(t.Then)
	}
	if len(t.Else) > 0 {
		out.Failure = e.ops(t.Else)
	}
}

func (e *encoder) compare(c *kv.Compare) *pb.Compare {
	s := take(&e.compares)
	s.msg.Key, s.msg.RangeEnd = e.bytes(c.Key), e.bytes(c.End)
	s.msg.Result = relations[c.Relation]
	switch c.Target {
	case kv.TargetCreateRevision:
		s.create.CreateRevision = c.Int
		s.msg.Target, s.msg.TargetUnion = pb.Compare_CREATE, &s.create
	case kv.TargetModRevision:
		s.mod.ModRevision = c.Int
		s.msg.Target, s.msg.TargetUnion = pb.Compare_MOD, &s.mod
	case kv.TargetVersion:
		s.msg.Target, s.msg.TargetUnion = pb.Compare_VERSION, &pb.Compare_Version{Version: c.Int}
	case kv.TargetLease:
		s.msg.Target, s.msg.TargetUnion = pb.Compare_LEASE, &pb.Compare_Lease{Lease: c.Int}
	case kv.TargetValue:
		s.msg.Target, s.msg.TargetUnion = pb.Compare_VALUE, &pb.Compare_Value{Value: e.bytes(c.Value)}
	}
	return &s.msg
}

func (e *encoder) ops(ops []kv.Op) []*pb.RequestOp {
	out := row(&e.opp, len(ops))
	for i := range ops {
		switch op := &ops[i]; op.Kind {
		case kv.OpGet:
			s := take(&e.gets)
			s.req.Key, s.req.RangeEnd = e.bytes(op.Key), e.bytes(op.End)
			s.req.Limit, s.req.KeysOnly = op.Limit, op.Keys
			s.of.RequestRange = &s.req
			s.msg.Request = &s.of
			out[i] = &s.msg
		case kv.OpPut:
			s := take(&e.puts)
			s.req.Key, s.req.Value, s.req.Lease = e.bytes(op.Key), op.Value, int64(op.Lease)
			s.of.RequestPut = &s.req
			s.msg.Request = &s.of
			out[i] = &s.msg
		case kv.OpDelete:
			s := take(&e.deletes)
			s.req.Key, s.req.RangeEnd = e.bytes(op.Key), e.bytes(op.End)
			s.of.RequestDeleteRange = &s.req
			s.msg.Request = &s.of
			out[i] = &s.msg
		case kv.OpTxn:
			s := take(&e.txns)
			if op.Txn != nil {
				e.txn(op.Txn, &s.req)
			}
			s.of.RequestTxn = &s.req
			s.msg.Request = &s.of
			out[i] = &s.msg
		}
	}
	return out
}
