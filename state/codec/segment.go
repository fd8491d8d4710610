package codec

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
)

// MaxSegmentBlock bounds what a stored segment unpacks to.
const MaxSegmentBlock = 8 << 20

// Packed is one verdict of a segment: what was stored under its run.
type Packed struct {
	Run state.RunID
	// Revision is that at which the verdict was written.
	Revision int64
	Record   *statev1.Record
}

// MarshalSegment packs verdicts, which are in order of their runs. Their records are
// as before when it returns.
func MarshalSegment(of []Packed) ([]byte, error) {
	block := &statev1.SegmentBlock{}
	var revision, due int64
	for _, p := range of {
		r := proto.CloneOf(p.Record)
		run := string(p.Run)
		if p.Run == state.SlotRunID(Time(r.GetDue())) {
			run = ""
		}
		block.Runs = append(block.Runs, run)
		block.Revisions = append(block.Revisions, p.Revision-revision)
		revision = p.Revision
		own := r.GetDue()
		relate(r, p.Revision, due, apart)
		due = own
		block.Records = append(block.Records, r)
	}
	raw, err := proto.Marshal(block)
	if err != nil {
		return nil, err
	}
	if len(raw) > MaxSegmentBlock {
		return nil, fmt.Errorf("a segment of %d bytes, more than %d", len(raw), MaxSegmentBlock)
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err = w.Write(raw); err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, err
	}
	return proto.Marshal(&statev1.Segment{Block: packed.Bytes(), Size: int64(len(raw))})
}

// UnmarshalSegment is the inverse of MarshalSegment.
func UnmarshalSegment(value []byte) ([]Packed, error) {
	var segment statev1.Segment
	if err := proto.Unmarshal(value, &segment); err != nil {
		return nil, err
	}
	if n := segment.GetSize(); n <= 0 || n > MaxSegmentBlock {
		return nil, fmt.Errorf("it says that it unpacks to %d bytes", n)
	}
	raw := make([]byte, segment.GetSize())
	r := flate.NewReader(bytes.NewReader(segment.GetBlock()))
	if _, err := io.ReadFull(r, raw); err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	var block statev1.SegmentBlock
	if err := proto.Unmarshal(raw, &block); err != nil {
		return nil, err
	}
	n := len(block.GetRecords())
	if n == 0 || len(block.GetRuns()) != n || len(block.GetRevisions()) != n {
		return nil, errors.New("its lists differ in length, or are empty")
	}
	out := make([]Packed, n)
	var revision, due int64
	for i, r := range block.GetRecords() {
		revision += block.GetRevisions()[i]
		relate(r, revision, due, together)
		due = r.GetDue()
		run := state.RunID(block.GetRuns()[i])
		if run == "" {
			run = state.SlotRunID(Time(due))
		}
		out[i] = Packed{Run: run, Revision: revision, Record: r}
	}
	return out, nil
}

// relate replaces the numbers of a verdict that lie near another one by what lies
// between, or the other way round. Each is taken against one that the reader has
// by then: due against that of the verdict before, the rest against what happened
// shortly before it.
func relate(r *statev1.Record, revision, before int64, by func(v *int64, near int64) (plain int64)) {
	due := by(&r.Due, before)
	by(&r.Until, due)
	near := due
	for _, a := range r.GetAttempts() {
		by(&a.Token, revision)
		near = by(&a.Claimed, due)
		if started := by(&a.Started, due); started != 0 {
			near = started
		}
		if ended := by(&a.Ended, near); ended != 0 {
			near = ended
		}
	}
	by(&r.Recorded, near)
}

// apart puts the difference in place of a number, and answers the number. 0 stands
// for none and stays; a difference of 0 becomes 1.
func apart(v *int64, near int64) int64 {
	plain := *v
	if plain != 0 {
		d := plain - near
		*v = (d<<1 ^ d>>63) + 1 // zigzag: small ones of either sign are short
	}
	return plain
}

// together is the inverse of apart.
func together(v *int64, near int64) int64 {
	if *v != 0 {
		u := uint64(*v - 1) //nolint:gosec // bits
		*v = near + (int64(u>>1) ^ -int64(u&1))
	}
	return *v
}
