package etcdkv

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaderd/leaderd/state/kv"
)

// decode turns etcd's answer to t into r. An answer that does not fit the request
// is an error.
func decode(in *pb.TxnResponse, t *kv.Txn, r *kv.TxnResult) error {
	r.Succeeded = in.Succeeded
	ops := t.Else
	if in.Succeeded {
		ops = t.Then
	}
	if len(ops) == 0 {
		return nil // what encode may have put there is no concern of the caller's
	}
	if len(in.Responses) != len(ops) {
		return fmt.Errorf("%d answers to %d operations", len(in.Responses), len(ops))
	}
	r.Results = make([]kv.Result, len(ops))
	for i := range ops {
		out, answer := &r.Results[i], in.Responses[i]
		switch ops[i].Kind {
		case kv.OpGet:
			a := answer.GetResponseRange()
			out.KVs, out.More = keyValues(a.GetKvs()), a.GetMore()
		case kv.OpPut:
		case kv.OpDelete:
			out.Deleted = answer.GetResponseDeleteRange().GetDeleted()
		case kv.OpTxn:
			a := answer.GetResponseTxn()
			if a == nil {
				return fmt.Errorf("answer %d is not of a transaction", i)
			}
			out.Txn = &kv.TxnResult{}
			inner := ops[i].Txn
			if inner == nil {
				inner = &kv.Txn{}
			}
			if err := decode(a, inner, out.Txn); err != nil {
				return err
			}
		}
	}
	return nil
}

func keyValues(in []*mvccpb.KeyValue) []kv.KeyValue {
	if len(in) == 0 {
		return nil
	}
	out := make([]kv.KeyValue, len(in))
	for i, k := range in {
		keyValue(k, &out[i])
	}
	return out
}

func keyValue(in *mvccpb.KeyValue, out *kv.KeyValue) {
	*out = kv.KeyValue{
		Key:            string(in.Key),
		CreateRevision: in.CreateRevision,
		ModRevision:    in.ModRevision,
		Version:        in.Version,
		Lease:          kv.LeaseID(in.Lease),
	}
	if len(in.Value) > 0 {
		out.Value = in.Value
	}
}
