package codec

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

// ShardsToProto is how a job's runs are split in its API form.
func ShardsToProto(s *state.Shards) *leaderdv1.Shards {
	if s == nil {
		return nil
	}
	p := &leaderdv1.Shards{
		Count: int32(s.Count), Broadcast: s.Broadcast, //nolint:gosec // bounded by state.MaxShards
		MinSuccess: int32(s.MinSuccess), StopOnFailure: s.StopOnFailure, //nolint:gosec // bounded by state.MaxShards
	}
	if r := s.Range; r != nil {
		p.Range = &leaderdv1.ShardRange{From: r.From, To: r.To}
	}
	p.Params, p.Dynamic = shardListToProto(s.Params), listingToProto(s.Dynamic)
	return p
}

// ShardsFromProto is the inverse of ShardsToProto.
func ShardsFromProto(p *leaderdv1.Shards) *state.Shards {
	if p == nil {
		return nil
	}
	s := &state.Shards{
		Count: int(p.GetCount()), Broadcast: p.GetBroadcast(), MinSuccess: int(p.GetMinSuccess()), StopOnFailure: p.GetStopOnFailure(),
	}
	if r := p.GetRange(); r != nil {
		s.Range = &state.ShardRange{From: r.GetFrom(), To: r.GetTo()}
	}
	s.Params, s.Dynamic = shardListFromProto(p.GetParams()), listingFromProto(p.GetDynamic())
	return s
}

func shardListToProto(list []map[string]string) []*leaderdv1.ShardParams {
	if len(list) == 0 {
		return nil
	}
	ps := make([]*leaderdv1.ShardParams, len(list))
	for i, params := range list {
		ps[i] = &leaderdv1.ShardParams{Values: params}
	}
	return ps
}

func shardListFromProto(ps []*leaderdv1.ShardParams) []map[string]string {
	if len(ps) == 0 {
		return nil
	}
	list := make([]map[string]string, len(ps))
	for i, p := range ps {
		list[i] = p.GetValues()
	}
	return list
}

func listingToProto(l *state.Listing) *leaderdv1.DynamicShards {
	if l == nil {
		return nil
	}
	p := &leaderdv1.DynamicShards{Max: int32(l.Max)} //nolint:gosec // bounded by state.MaxShards
	switch {
	case l.Command != nil:
		p.Target = &leaderdv1.DynamicShards_Command{Command: commandToProto(l.Command)}
	case l.HTTP != nil:
		p.Target = &leaderdv1.DynamicShards_Http{Http: httpToProto(l.HTTP)}
	}
	return p
}

func listingFromProto(p *leaderdv1.DynamicShards) *state.Listing {
	if p == nil {
		return nil
	}
	l := &state.Listing{Max: int(p.GetMax())}
	switch t := p.GetTarget().(type) {
	case *leaderdv1.DynamicShards_Command:
		l.Command = commandFromProto(t.Command)
	case *leaderdv1.DynamicShards_Http:
		l.HTTP = httpFromProto(t.Http)
	}
	return l
}

// SplitToProto is what a run is split into in its stored form.
func SplitToProto(s *state.Split) *statev1.Split {
	if s == nil {
		return nil
	}
	return &statev1.Split{
		Shards: recordedShards(&s.Shards), Nodes: s.Nodes, Carried: shardsOfToProto(s.Carried), Resumed: shardsOfToProto(s.Resumed),
	}
}

func shardsOfToProto(of []state.ShardsOf) []*statev1.ShardsOf {
	if len(of) == 0 {
		return nil
	}
	ps := make([]*statev1.ShardsOf, len(of))
	for i := range of {
		ps[i] = &statev1.ShardsOf{Run: string(of[i].Run), Shards: make([]int32, len(of[i].Shards))}
		for j, n := range of[i].Shards {
			ps[i].Shards[j] = int32(n) //nolint:gosec // bounded by state.MaxShards
		}
	}
	return ps
}

func shardsOfFromProto(ps []*statev1.ShardsOf) []state.ShardsOf {
	if len(ps) == 0 {
		return nil
	}
	of := make([]state.ShardsOf, len(ps))
	for i, p := range ps {
		of[i] = state.ShardsOf{Run: state.RunID(p.GetRun()), Shards: make([]int, len(p.GetShards()))}
		for j, n := range p.GetShards() {
			of[i].Shards[j] = int(n)
		}
	}
	return of
}

// recordedShards is ShardsToProto for records: see wire.shards.
func recordedShards(s *state.Shards) *leaderdv1.Shards {
	p := ShardsToProto(s)
	if p.GetDynamic() != nil {
		p.Dynamic.Target = nil
	}
	return p
}

// SplitFromProto is the inverse of SplitToProto.
func SplitFromProto(p *statev1.Split) *state.Split {
	if p == nil {
		return nil
	}
	s := &state.Split{
		Nodes: p.GetNodes(), Carried: shardsOfFromProto(p.GetCarried()), Resumed: shardsOfFromProto(p.GetResumed()),
	}
	if shards := ShardsFromProto(p.GetShards()); shards != nil {
		s.Shards = *shards
	}
	return s
}

func shardEndToProto(e *state.ShardEnd) *statev1.ShardEnd {
	if e == nil {
		return nil
	}
	return &statev1.ShardEnd{
		Reason: e.Reason, Detail: e.Detail, Recorded: Micros(e.Recorded), Tail: e.Tail, OutputBytes: e.OutputBytes,
	}
}

func shardEndFromProto(p *statev1.ShardEnd) *state.ShardEnd {
	if p == nil {
		return nil
	}
	return &state.ShardEnd{
		Reason: p.GetReason(), Detail: p.GetDetail(), Recorded: Time(p.GetRecorded()), Tail: p.GetTail(), OutputBytes: p.GetOutputBytes(),
	}
}

func endsToProto(ends []state.Live) []*statev1.Live {
	if len(ends) == 0 {
		return nil
	}
	ps := make([]*statev1.Live, len(ends))
	for i := range ends {
		ps[i] = LiveToProto(&ends[i])
	}
	return ps
}

func endsFromProto(ps []*statev1.Live) []state.Live {
	if len(ps) == 0 {
		return nil
	}
	ends := make([]state.Live, len(ps))
	for i, p := range ps {
		ends[i] = LiveFromProto(p)
	}
	return ends
}

// PartToProto is what a shard is given; nil where that is nothing.
func PartToProto(part *state.Part) *workerv1.Part {
	if !part.HasRange && len(part.Params) == 0 {
		return nil
	}
	return &workerv1.Part{From: part.Range.From, To: part.Range.To, HasRange: part.HasRange, Params: part.Params}
}

// PartFromProto is the inverse of PartToProto.
func PartFromProto(p *workerv1.Part) state.Part {
	return state.Part{
		Range: state.ShardRange{From: p.GetFrom(), To: p.GetTo()}, HasRange: p.GetHasRange(), Params: p.GetParams(),
	}
}

// nested writes a message, which is there also where it is empty.
func (w *wire) nested(field protowire.Number, m wire) {
	*w = protowire.AppendBytes(protowire.AppendTag(*w, field, protowire.BytesType), m)
}

// shards writes how a run is split. What its first step runs is the job's to say, and no
// part of records.
func (w *wire) shards(field protowire.Number, s *state.Shards) {
	if s == nil {
		return
	}
	var shards wire
	shards.number(1, int64(s.Count))
	if r := s.Range; r != nil {
		var numbers wire
		numbers.number(1, r.From)
		numbers.number(2, r.To)
		shards.nested(2, numbers)
	}
	shards.flag(3, s.Broadcast)
	for _, params := range s.Params {
		var values wire
		names := make([]string, 0, len(params))
		for name := range params {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			var value wire
			value.text(1, name)
			value.text(2, params[name])
			values.nested(1, value)
		}
		shards.nested(4, values)
	}
	shards.number(5, int64(s.MinSuccess))
	shards.flag(6, s.StopOnFailure)
	if l := s.Dynamic; l != nil {
		var listing wire
		listing.number(1, int64(l.Max))
		shards.nested(7, listing)
	}
	w.nested(field, shards)
}

func (w *wire) split(field protowire.Number, s *state.Split) {
	if s == nil {
		return
	}
	var all wire
	all.shards(1, &s.Shards)
	for _, node := range s.Nodes {
		var name wire = []byte(node)
		all.nested(2, name)
	}
	all.shardsOf(3, s.Carried)
	all.shardsOf(4, s.Resumed)
	w.nested(field, all)
}

func (w *wire) shardsOf(field protowire.Number, of []state.ShardsOf) {
	for i := range of {
		var one, numbers wire
		one.text(1, string(of[i].Run))
		for _, n := range of[i].Shards {
			numbers = protowire.AppendVarint(numbers, uint64(n)) //nolint:gosec // numbers of shards are not negative
		}
		one.bytes(2, numbers)
		w.nested(field, one)
	}
}

func (w *wire) shardEnd(field protowire.Number, e *state.ShardEnd) {
	if e == nil {
		return
	}
	var end wire
	end.text(1, e.Reason)
	end.text(2, e.Detail)
	end.instant(3, e.Recorded)
	end.bytes(4, e.Tail)
	end.number(5, e.OutputBytes)
	w.nested(field, end)
}
