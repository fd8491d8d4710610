// Package etcdkv is the store on etcd: a kv.KV over etcd's gRPC services.
//
// # Outcomes
//
// Nothing is retried here, and nothing below may be: New wants a client made with
// MaxUnaryRetries 1 (see ClientConfig), because the client's interceptor repeats
// writes that the server itself timed out or cancelled. Each error is put into one
// class of package kv. What matters is the line between ErrUnavailable, certainly
// not applied, and ErrUnknown: a write is of the first class only where etcd says so
// by the very error, or where the request was never handed to a connection.
//
// Requests ask for a leader: a member that knows of none refuses at once, with
// ErrUnavailable, where it would otherwise hold the request until it times out with
// an outcome unknown.
//
// # Reads
//
// Transactions that only read are linearizable, as Range is. etcd takes one without
// any operation, only compares, for a stale local read; such a one goes through the
// log instead.
//
// # Watches
//
// Every watch has a stream of its own, so one slow reader holds up no other, and a
// broken stream ends the watch with an error instead of being resumed unseen: the
// reader knows, and watches again from where it was. Messages that etcd split are
// joined, so that a revision arrives whole. A reader that does not read stops its
// stream by flow control; the server then catches it up later from its history.
package etcdkv
