// Package kv is the one seam between leaderd and its store: the part of etcd's
// data model that leaderd relies on, and nothing more. There are two
// implementations, etcdkv (etcd) and memkv (exact, in memory, usable inside a
// testing/synctest bubble); kvtest holds the conformance suite that both pass.
//
// # Model
//
// The store is one ordered map from byte-string keys to values under a single
// rising revision. A transaction is atomic: all compares of its whole tree of
// nested transactions are evaluated against the state before it, then the
// chosen branches are applied, all under one new revision. A transaction that
// writes nothing leaves the revision as it is. Nothing here retries: callers
// (see package store) classify errors and decide.
//
// Ranges are [Key, End). An empty End means Key alone, and End "\x00" means all
// keys from Key on (etcd's rules). An empty Key is ErrInvalid, except in Watch
// where it stands for the least key. A range whose End is not above its Key is
// empty.
//
// All methods may be called concurrently. Every method that takes a context
// returns when it is done, with an error that wraps context.Cause(ctx) or the
// context's own error beside the class of the outcome.
package kv

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Limits that etcd enforces with its default flags. An external etcd may have
// no others, so leaderd never goes above them.
const (
	// MaxTxnOps is the greatest number of compares, of then-operations or of
	// else-operations at the top level of a transaction. With n outer
	// operations each nested transaction may have MaxTxnOps - n of each kind.
	MaxTxnOps = 128
	// MaxRequestBytes is the greatest encoded size of one request.
	MaxRequestBytes = 1.5 * 1024 * 1024
)

// Errors, to be matched with errors.Is. Anything else that an implementation
// returns for a Txn is of class ErrUnknown.
var (
	// ErrCompacted: the revision asked for is older than the store keeps.
	ErrCompacted = errors.New("kv: revision compacted")
	// ErrLeaseNotFound: the lease does not exist (any more).
	ErrLeaseNotFound = errors.New("kv: lease not found")
	// ErrNoSpace: the store's quota is used up. As a rule nothing was written,
	// but etcd carries out the very request that crosses its quota, and refuses
	// it all the same. Deletes may still work.
	ErrNoSpace = errors.New("kv: no space")
	// ErrTooManyRequests: the store is overloaded; nothing was written.
	ErrTooManyRequests = errors.New("kv: too many requests")
	// ErrInvalid: the request itself was refused (a key put twice, too many
	// operations, too large, an empty key, a revision that is not there yet);
	// nothing was written; repeating is useless.
	ErrInvalid = errors.New("kv: invalid request")
	// ErrUnavailable: the store could not be reached or had no leader, and the
	// request was certainly not applied.
	ErrUnavailable = errors.New("kv: unavailable")
	// ErrUnknown: the outcome is unknown: the request may have been applied, or
	// may yet be (time-out, broken connection).
	ErrUnknown = errors.New("kv: unknown outcome")
	// ErrPermission: the store refused the credentials; nothing was written.
	ErrPermission = errors.New("kv: permission denied")
	// ErrClosed: the watcher was closed by its owner.
	ErrClosed = errors.New("kv: closed")
)

// KeyValue is one key as the store holds it. Callers must not modify Value.
type KeyValue struct {
	Key            string
	Value          []byte
	CreateRevision int64
	ModRevision    int64
	Version        int64
	Lease          LeaseID
}

// LeaseID names a lease; 0 means none.
type LeaseID int64

// Target is what a compare looks at.
type Target uint8

// Targets.
const (
	TargetCreateRevision Target = iota
	TargetModRevision
	TargetVersion
	TargetValue
	TargetLease
)

// Relation is how a compare's two sides must relate: stored REL given.
type Relation uint8

// Relations.
const (
	Equal Relation = iota
	NotEqual
	Less
	Greater
)

// Compare is one condition of a transaction. For an absent key the numeric
// targets read as 0 and TargetValue is false whatever the relation (etcd's
// rule). With End set the condition must hold for every key in [Key, End); an
// empty range counts as one absent key.
type Compare struct {
	Key      string
	End      string
	Target   Target
	Relation Relation
	Int      int64  // for the numeric targets
	Value    string // for TargetValue
}

// OpKind is the kind of an operation.
type OpKind uint8

// Kinds of operation.
const (
	OpGet OpKind = iota
	OpPut
	OpDelete
	OpTxn
)

// Op is one operation of a transaction. Use the constructors.
type Op struct {
	Kind  OpKind
	Keys  bool // OpGet: leave values and leases out
	Key   string
	End   string // OpGet, OpDelete: the range [Key, End); empty means Key alone
	Value []byte // OpPut
	Lease LeaseID
	Limit int64 // OpGet: 0 means no limit
	Txn   *Txn  // OpTxn; nil means a transaction of nothing
}

// Get reads one key.
func Get(key string) Op { return Op{Kind: OpGet, Key: key} }

// GetRange reads up to limit keys of [key, end) in key order; 0 means all.
func GetRange(key, end string, limit int64) Op {
	return Op{Kind: OpGet, Key: key, End: end, Limit: limit}
}

// Put writes one key, bound to the lease unless that is 0.
func Put(key string, value []byte, lease LeaseID) Op {
	return Op{Kind: OpPut, Key: key, Value: value, Lease: lease}
}

// Delete removes one key.
func Delete(key string) Op { return Op{Kind: OpDelete, Key: key} }

// DeleteRange removes all keys of [key, end).
func DeleteRange(key, end string) Op { return Op{Kind: OpDelete, Key: key, End: end} }

// Nested runs a transaction inside another one.
func Nested(t *Txn) Op { return Op{Kind: OpTxn, Txn: t} }

// Txn is IF all compares hold THEN Then ELSE Else.
type Txn struct {
	If   []Compare
	Then []Op
	Else []Op
}

// Result answers one operation, by its kind.
type Result struct {
	KVs     []KeyValue // OpGet
	More    bool       // OpGet: the limit cut the answer
	Deleted int64      // OpDelete
	Txn     *TxnResult // OpTxn
}

// TxnResult answers a transaction: which branch ran, and its operations'
// results in order. Revision is the store's revision after the transaction;
// only the outermost result has it.
type TxnResult struct {
	Revision  int64
	Succeeded bool
	Results   []Result
}

// RangeOptions shape a Range. The zero value reads all keys at the newest
// revision, linearizably.
type RangeOptions struct {
	Limit        int64 // 0: no limit
	Revision     int64 // 0: newest
	KeysOnly     bool  // leave values and leases out
	Serializable bool  // may be stale, asks no quorum
}

// RangeResult answers a Range. Revision is the store's revision at the time of
// the answer, also where an older one was read. To read in pages, take the
// Revision of the first page and ask for it in all that follow.
type RangeResult struct {
	KVs      []KeyValue
	More     bool
	Count    int64 // keys in the range, whatever the limit
	Revision int64
}

// Event is one change of a key. A deleted key has Deleted set and only its Key
// and ModRevision.
type Event struct {
	Deleted bool
	KV      KeyValue
}

// WatchBatch is what a watch delivers: all events of one or more whole
// revisions, in order (a revision is never split), or none (progress). Revision
// is the newest revision up to which the watcher has now seen everything.
type WatchBatch struct {
	Events   []Event
	Revision int64
}

// Watcher is one running watch. Next may be called by one goroutine at a time,
// Close by any.
type Watcher interface {
	// Next blocks for the next batch. After an error the watcher is dead:
	// ErrCompacted means that events were lost and the caller must list again;
	// any other error that it may watch again from the last revision + 1. Only
	// a call that ends with its own context leaves the watcher as it was.
	Next(ctx context.Context) (WatchBatch, error)
	// Close ends the watch and frees what it holds. It may be called twice.
	Close()
}

// KV is the store.
type KV interface {
	// Txn commits t. On error see the classes above.
	Txn(ctx context.Context, t Txn) (TxnResult, error)

	// Range reads [key, end), or key alone when end is empty.
	Range(ctx context.Context, key, end string, o RangeOptions) (RangeResult, error)

	// Watch begins to watch [key, end) (key alone when end is empty) with the
	// first change at or after revision from; 0 means from now on, and every
	// change after the return is seen. ctx bounds the call alone: the watch runs
	// until Close or an error. It asks for a leader: a member cut off from its
	// peers ends the watch. A reader that falls behind holds up no writer; when
	// compaction overtakes it, it gets ErrCompacted. Progress batches come when
	// nothing else does, at etcd's interval (ten minutes by default), and soon
	// after Progress to a watch that has nothing left to deliver.
	Watch(ctx context.Context, key, end string, from int64) (Watcher, error)

	// Progress asks the store to deliver progress to the running watches soon.
	// It is best effort: no answer may come where a watch is still catching up.
	Progress(ctx context.Context) error

	// Grant makes a lease that ends ttl (rounded up to whole seconds) after its
	// last keep-alive; the answer holds the TTL that the store granted, which
	// may be longer. When the lease ends its keys are deleted, all under one
	// revision. After ErrUnknown an ownerless lease may be left, which ends by
	// itself.
	Grant(ctx context.Context, ttl time.Duration) (LeaseID, time.Duration, error)
	// KeepAlive renews a lease once and answers its TTL, or ErrLeaseNotFound.
	KeepAlive(ctx context.Context, id LeaseID) (time.Duration, error)
	// Revoke ends a lease and deletes its keys. A lease that does not exist is
	// no error.
	Revoke(ctx context.Context, id LeaseID) error

	// Compact forgets all revisions before rev: what they held is still there,
	// but can no longer be read or watched at them. ErrCompacted means that it
	// had been done already, ErrInvalid that rev is not there yet.
	Compact(ctx context.Context, rev int64) error
}

// PrefixEnd is the end of the range of all keys that begin with prefix.
// Callers pass a prefix that ends in a terminator ('/').
func PrefixEnd(prefix string) string {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return string(b[:i+1])
		}
	}
	return "\x00"
}

// MaxTTL is the longest TTL of a lease.
const MaxTTL = 9_000_000_000 * time.Second

// TTLSeconds is ttl in whole seconds, rounded up, as Grant takes it; a TTL that
// is not positive or above MaxTTL is ErrInvalid.
func TTLSeconds(ttl time.Duration) (int64, error) {
	if ttl <= 0 || ttl > MaxTTL {
		return 0, fmt.Errorf("lease of %s: %w", ttl, ErrInvalid)
	}
	return int64((ttl-1)/time.Second) + 1, nil
}
