package codec

import (
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/leaderd/leaderd/state"
)

// Every claim and every finish encodes one of these messages, so they are written
// straight to bytes: a message built first, and encoded by reflection, costs several
// times as much. A test holds them to proto.Marshal of LiveToProto and RecordToProto.

// wire is an encoded message that grows. Fields that have their zero value are left
// out, as protobuf has it.
type wire []byte

func (w *wire) number(field protowire.Number, v int64) {
	if v != 0 {
		*w = protowire.AppendVarint(protowire.AppendTag(*w, field, protowire.VarintType), uint64(v)) //nolint:gosec // as protobuf has it
	}
}

func (w *wire) instant(field protowire.Number, t time.Time) { w.number(field, Micros(t)) }

func (w *wire) flag(field protowire.Number, v bool) {
	if v {
		w.number(field, 1)
	}
}

// text writes a string. Bytes that are no UTF-8 would make the message unreadable:
// they are replaced.
func (w *wire) text(field protowire.Number, s string) {
	if s != "" {
		*w = protowire.AppendString(protowire.AppendTag(*w, field, protowire.BytesType), strings.ToValidUTF8(s, "\uFFFD"))
	}
}

func (w *wire) bytes(field protowire.Number, b []byte) {
	if len(b) > 0 {
		*w = protowire.AppendBytes(protowire.AppendTag(*w, field, protowire.BytesType), b)
	}
}

func (w *wire) attempts(field protowire.Number, as []state.Attempt) {
	for i := range as {
		*w = protowire.AppendTag(*w, field, protowire.BytesType)
		at := len(*w)
		w.attempt(&as[i])
		w.insertSize(at)
	}
}

// insertSize puts the length of all that was written since in front of it.
func (w *wire) insertSize(at int) {
	n := len(*w) - at
	size := protowire.SizeVarint(uint64(n)) //nolint:gosec // a length
	*w = append(*w, make([]byte, size)...)
	copy((*w)[at+size:], (*w)[at:at+n])
	protowire.AppendVarint((*w)[at:at], uint64(n)) //nolint:gosec // a length
}

func (w *wire) attempt(a *state.Attempt) {
	w.number(1, int64(a.Number))
	w.text(2, a.Node)
	w.number(3, a.Token)
	w.number(4, a.Term)
	w.instant(5, a.Claimed)
	w.instant(6, a.Started)
	w.instant(7, a.Ended)
	w.number(8, int64(a.State))
	if a.HasCode {
		*w = protowire.AppendVarint(protowire.AppendTag(*w, 9, protowire.VarintType), uint64(int64(int32(a.ExitCode)))) //nolint:gosec // as protobuf has it
	}
	w.text(10, a.Error)
	w.flag(20, a.Snoozed)
	w.number(50, a.Done)
	w.number(51, a.Total)
	w.text(52, a.Message)
	w.flag(90, a.Unclaimed)
}

// MarshalLive is the stored value of a live record: statev1.Live.
func MarshalLive(l *state.Live) []byte {
	w := make(wire, 0, 96+len(l.Run)+len(l.Owner.Node)+len(l.GateKey)+attemptsSize(l.Attempts))
	w.text(1, string(l.Run))
	w.number(2, int64(l.Shard))
	w.number(3, int64(l.Shards))
	w.number(4, l.Generation)
	w.number(5, int64(l.State))
	w.number(6, int64(l.Attempt))
	w.text(7, l.Owner.Node)
	w.number(8, l.Owner.Revision)
	w.number(9, l.Term)
	w.instant(10, l.Due)
	w.instant(11, l.Claimed)
	w.instant(12, l.NextTry)
	w.flag(13, l.AtMostOnce)
	w.attempts(14, l.Attempts)
	w.text(15, l.GateKey)
	w.number(16, int64(l.Place))
	w.number(20, int64(l.Tries))
	w.number(21, int64(l.Snoozes))
	w.text(22, string(l.Origin))
	w.flag(23, l.DeadLetter)
	w.breaker(24, l.Circuit)
	w.number(30, l.Header)
	w.shardEnd(31, l.End)
	w.split(32, l.Split)
	w.shards(33, l.Listing)
	w.holds(70, l.Holds)
	w.chain(&l.Chain)
	w.text(82, l.LimitKey)
	return w
}

// MarshalRecord is the stored value of a verdict: statev1.Record.
func MarshalRecord(r *state.Record) []byte {
	w := make(wire, 0, 96+len(r.Reason)+len(r.Detail)+len(r.Tail)+attemptsSize(r.Attempts))
	w.number(1, r.Generation)
	w.number(2, int64(r.State))
	w.text(3, r.Reason)
	w.text(4, r.Detail)
	w.instant(5, r.Due)
	w.instant(6, r.Until)
	w.number(7, r.Count)
	w.instant(8, r.Recorded)
	w.number(9, int64(r.Shards))
	w.attempts(10, r.Attempts)
	w.bytes(11, r.Tail)
	w.number(12, r.OutputBytes)
	w.text(20, string(r.Origin))
	w.number(21, int64(r.Tries))
	w.hooks(22, r.Hooks)
	for i := range r.Ends {
		w.nested(30, MarshalLive(&r.Ends[i]))
	}
	w.split(31, r.Split)
	w.flag(40, r.Result)
	w.chain(&r.Chain)
	w.text(82, r.LimitKey)
	w.attempts(90, r.Doubles)
	return w
}

// attemptsSize is about the encoded size of as.
func attemptsSize(as []state.Attempt) int {
	n := 0
	for i := range as {
		n += 80 + len(as[i].Node) + len(as[i].Error) + len(as[i].Message)
	}
	return n
}
