// Package rpc is the one place where the settings of leaderd's gRPC connections
// are: what client and server must agree on stands side by side, so that neither
// can be changed alone.
//
// # Life of a connection
//
// Either side pings a connection on which nothing came in for KeepAliveTime, and
// takes it for dead KeepAliveTimeout later; clients do so without a running RPC
// too. A server refuses pings that come faster than MinPingInterval, with GOAWAY,
// which would break every stream of the connection: so that is well below what our
// clients do, and outside clients with gRPC's defaults do not ping at all.
//
// A client that was refused tries again after MaxReconnectWait at the latest: the
// default of two minutes would outlast any lease.
//
// # Sizes
//
// A message has at most MaxMessageBytes, in both directions. All that we send
// stays well below: plans and journal messages are cut at 1 MiB, a spec, the
// greatest single thing, has half of that, and lists are paged by bytes.
//
// # Panics
//
// A panic in a handler ends its RPC with INTERNAL, is logged with its stack and
// counted, and harms nothing else. Goroutines that a handler starts are not
// covered: they have a boundary of their own.
package rpc
