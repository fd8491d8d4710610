// Package journal serves leaderd.worker.v1.JournalService: what executors that
// have no store of their own ask of a control node. It keeps nothing between two
// requests; every promise is the store's.
//
// # A stream
//
//	message -> checked -> a goroutine for each entry -> store -> answers gather -> message
//
// Entries of a stream are independent: each is carried out at once, beside the
// others, and answered when its own outcome is known. While one answer is being
// sent, others gather. At most MaxInFlight entries of a stream are begun and not
// yet answered; then the stream is not read, which slows its client down.
//
// A message that breaks a limit ends the stream with INVALID_ARGUMENT; an entry
// that does is answered with it, alone.
//
// # Failures
//
// When a stream ends, by whatever cause, the entries that were begun go on in the
// store, for up to Linger; then they are given up, and their outcome is unknown.
// Their client asks again elsewhere, which is safe: requests are idempotent. The
// handler returns when the last of them has.
//
// A panic of the store at one entry is answered with INTERNAL to that one.
//
// # Codes
//
// UNAVAILABLE, and only that, tells a client to ask again, elsewhere: see
// classify for the table. What the store's driver says stays in our log.
//
// # Non-guarantees
//
// Whoever reaches the listener may claim in any node's name: see the limits of
// the transport's credentials.
package journal
