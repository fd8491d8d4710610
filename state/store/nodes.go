package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
)

// Register makes the lease-bound key of a node. What is there under the name,
// of this process or of one that started earlier, is taken over: its key is
// deleted, then one with a new CreateRevision is made, so nobody can mistake
// one registration for the other. The earlier process finds itself
// state.ErrNotRegistered. The registration ends TTL after its last KeepAliveNode; the
// store may grant a longer TTL than was asked for.
//
// The registration of a process that started later stands, and is answered with
// state.ErrNameTaken: of two live processes of one name the newer has it for good, in
// place of each taking it from the other. Clocks only settle who steps back, so
// they may be wrong: a name is never had by two, and one whose process is dead
// becomes free when its lease ends.
func (s *Store) Register(ctx context.Context, n state.Node, ttl time.Duration) (state.Registration, error) {
	reg, err := s.register(ctx, &n, ttl)
	if err != nil {
		return state.Registration{}, fmt.Errorf("register node %s: %w", n.Name, err)
	}
	return reg, nil
}

func (s *Store) register(ctx context.Context, n *state.Node, ttl time.Duration) (state.Registration, error) {
	value, err := proto.Marshal(codec.NodeToProto(n))
	if err != nil {
		return state.Registration{}, err
	}
	var reg state.Registration
	if err := s.repeat(ctx, func(ctx context.Context) error {
		lease, granted, err := s.kv.Grant(ctx, ttl)
		reg.Lease, reg.TTL = int64(lease), granted
		return err
	}); err != nil {
		return state.Registration{}, err
	}
	reg.Owner.Node = n.Name
	if reg.Owner.Revision, err = s.takeName(ctx, n, value, kv.LeaseID(reg.Lease)); err != nil {
		s.revokeLeft(ctx, reg)
		return state.Registration{}, err
	}
	return reg, nil
}

// takeName makes the node's key, and first deletes the one that is there.
func (s *Store) takeName(ctx context.Context, n *state.Node, value []byte, lease kv.LeaseID) (int64, error) {
	key := s.keys.node(n.Name)
	for range maxTries {
		res, _, err := s.send(ctx, kv.Txn{
			If:   []kv.Compare{absent(key)},
			Then: []kv.Op{kv.Put(key, value, lease)},
			Else: []kv.Op{kv.Get(key)},
		})
		if err != nil {
			return 0, err
		}
		if res.Succeeded {
			return res.Revision, nil
		}
		if len(res.Results[0].KVs) == 0 {
			continue
		}
		there := res.Results[0].KVs[0]
		if there.Lease == lease {
			return there.CreateRevision, nil // an earlier try of this was carried out
		}
		was, err := s.DecodeNode(there)
		if err == nil && codec.Micros(was.Started) > codec.Micros(n.Started) {
			return 0, fmt.Errorf("%w by another process, at %q, that started later, at %s; each node needs a name of its own",
				state.ErrNameTaken, was.Address, was.Started.Format(time.RFC3339))
		}
		s.log.Warn("node takes its name over from an earlier process", "node", n.Name,
			"earlier_address", was.Address, "earlier_started", was.Started, "earlier_revision", was.Revision, "err", err)
		if _, _, err := s.send(ctx, kv.Txn{
			If:   []kv.Compare{{Key: key, Target: kv.TargetCreateRevision, Int: there.CreateRevision}},
			Then: []kv.Op{kv.Delete(key)},
		}); err != nil {
			return 0, err
		}
	}
	return 0, ErrContended
}

// revokeLeft ends the lease of a registration that came to nothing. The lease
// would end by itself, so a failure is only told.
func (s *Store) revokeLeft(ctx context.Context, reg state.Registration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := s.kv.Revoke(ctx, kv.LeaseID(reg.Lease)); err != nil {
		s.log.Debug("lease of a registration that failed is left to end", "node", reg.Owner.Node, "err", err)
	}
}

// keepAliveTry is after how long a part of a keep-alive is asked again, perhaps
// of another member of the store: the lease does not wait for a silent one.
const keepAliveTry = 400 * time.Millisecond

// KeepAliveNode renews a registration once and answers its TTL, which counts
// from the call's start at the earliest. state.ErrNotRegistered is final; after any
// other error the registration may still stand.
func (s *Store) KeepAliveNode(ctx context.Context, reg state.Registration) (time.Duration, error) {
	var ttl time.Duration
	key := s.keys.node(reg.Owner.Node)
	err := s.repeatEach(ctx, keepAliveTry, func(ctx context.Context) (err error) {
		ttl, err = s.kv.KeepAlive(ctx, kv.LeaseID(reg.Lease))
		if errors.Is(err, kv.ErrLeaseNotFound) {
			err = fmt.Errorf("%w: %w", state.ErrNotRegistered, err)
		}
		return err
	})
	if err == nil {
		err = s.repeatEach(ctx, keepAliveTry, func(ctx context.Context) error {
			res, err := s.kv.Txn(ctx, kv.Txn{
				If: []kv.Compare{{Key: key, Target: kv.TargetCreateRevision, Int: reg.Owner.Revision}},
			})
			if err == nil && !res.Succeeded {
				err = state.ErrNotRegistered
			}
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("keep node %s: %w", reg.Owner.Node, err)
	}
	return ttl, nil
}

// Deregister gives a registration back. One that is gone already is no error,
// and nothing but a registration is ever ended: the lease must be the one that
// the node's key, of that very registration, is bound to.
func (s *Store) Deregister(ctx context.Context, reg state.Registration) error {
	if err := s.repeat(ctx, func(ctx context.Context) error {
		res, err := s.kv.Range(ctx, s.keys.node(reg.Owner.Node), "", kv.RangeOptions{})
		if err != nil {
			return err
		}
		lease := kv.LeaseID(reg.Lease)
		if len(res.KVs) == 0 || res.KVs[0].CreateRevision != reg.Owner.Revision || res.KVs[0].Lease != lease {
			return nil
		}
		return s.kv.Revoke(ctx, lease)
	}); err != nil {
		return fmt.Errorf("deregister node %s: %w", reg.Owner.Node, err)
	}
	return nil
}

// ListNodes reads all registered nodes linearizably, in order of name. One that
// cannot be read is logged and left out.
func (s *Store) ListNodes(ctx context.Context) ([]state.Node, error) {
	var nodes []state.Node
	err := s.repeat(ctx, func(ctx context.Context) error {
		nodes = nodes[:0]
		return s.scan(ctx, s.keys.nodes(), func(from kv.KeyValue) {
			nodes = s.appendNode(nodes, from)
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return nodes, nil
}

func (s *Store) appendNode(to []state.Node, from kv.KeyValue) []state.Node {
	n, err := s.DecodeNode(from)
	if err != nil {
		s.log.Error("unreadable node is left out", "key", from.Key, "err", err)
		return to
	}
	return append(to, n)
}

// DecodeNode reads a node from its key and value. An error wraps ErrCorrupt; the
// node then has its Revision, and its Name if the key has one.
func (s *Store) DecodeNode(from kv.KeyValue) (state.Node, error) {
	name, err := below(s.keys.nodes(), from.Key)
	if err == nil {
		name, err = unescape(name)
	}
	var message statev1.Node
	if err == nil {
		err = proto.Unmarshal(from.Value, &message)
	}
	if err != nil {
		return state.Node{Name: name, Revision: from.CreateRevision}, fmt.Errorf("%w: key %q: %w", ErrCorrupt, from.Key, err)
	}
	n := codec.NodeFromProto(&message)
	n.Name, n.Revision = name, from.CreateRevision
	return n, nil
}
