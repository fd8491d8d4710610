package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// write stores a value as the transactions of a run would.
func (s *served) write(t *testing.T, key string, message proto.Message) {
	t.Helper()
	value, err := proto.Marshal(message)
	require.NoError(t, err)
	_, err = s.db.Txn(t.Context(), kv.Txn{Then: []kv.Op{kv.Put(store.DefaultPrefix+key, value, 0)}})
	require.NoError(t, err)
}

func (s *served) run(t *testing.T, name string) *leaderdv1.Run {
	t.Helper()
	res, err := s.runs.GetRun(t.Context(), &leaderdv1.GetRunRequest{Name: billing + "/runs/" + name})
	require.NoError(t, err)
	return res.GetRun()
}

func TestRunsOverTheAPI(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	_, err := s.runs.GetRun(ctx, &leaderdv1.GetRunRequest{Name: billing + "/runs/20261130T120000Z"})
	requireFailure(t, err, codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_RUN_NOT_FOUND)

	failed := state.Attempt{
		Number: 1, Node: "n1", Token: 5, Term: 3, Claimed: noon, Started: noon, Ended: noon.Add(time.Second),
		State: state.StateFailed, ExitCode: 2, HasCode: true, Error: "oh",
	}
	s.write(t, "history/default/billing/20261130T120000Z", codec.RecordToProto(&state.Record{
		Generation: 4, State: state.StateFailed, Due: noon, Attempts: []state.Attempt{failed}, Tail: []byte("tail"), OutputBytes: 9,
	}))
	got := s.run(t, "20261130T120000Z")
	require.Equal(t, leaderdv1.Run_STATE_FAILED, got.GetState())
	require.EqualValues(t, 1, got.GetSlotCount())
	require.Nil(t, got.GetUntilTime())
	require.EqualValues(t, 2, got.GetAttempts()[0].GetExitCode())
	require.Equal(t, "tail", string(got.GetOutputTail()))

	// Running again at the job's gate, after a lost attempt.
	live := state.Live{
		Run: "20261130T120100Z", Shards: 1, State: state.StateRunning, Attempt: 2, Owner: state.Owner{Node: "n2", Revision: 4},
		Due: noon.Add(time.Minute), Claimed: noon.Add(time.Minute), Attempts: []state.Attempt{failed},
	}
	s.write(t, "active/default/billing/~", codec.LiveToProto(&live))
	got = s.run(t, "20261130T120100Z")
	require.Equal(t, leaderdv1.Run_STATE_RUNNING, got.GetState())
	require.Len(t, got.GetAttempts(), 2)
	require.Equal(t, leaderdv1.Run_STATE_RUNNING, got.GetAttempts()[1].GetState())
	require.Equal(t, "n2", got.GetAttempts()[1].GetNode())
	require.NotZero(t, got.GetAttempts()[1].GetToken())
	live.State, live.Owner, live.NextTry = state.StateWaiting, state.Owner{}, noon.Add(time.Hour)
	s.write(t, "active/default/billing/~", codec.LiveToProto(&live))
	got = s.run(t, "20261130T120100Z")
	require.Equal(t, leaderdv1.Run_STATE_WAITING, got.GetState())
	require.Equal(t, noon.Add(time.Hour), got.GetNextAttemptTime().AsTime())
	require.Len(t, got.GetAttempts(), 1)

	first := noon.Add(2 * time.Hour)
	s.write(t, "history/default/billing/20261130T140000Z", codec.RecordToProto(&state.Record{
		State: state.StateMissed, Reason: state.ReasonOutage, Due: first, Until: first.Add(time.Hour), Count: 61,
	}))
	got = s.run(t, "20261130T143000Z")
	require.Equal(t, billing+"/runs/20261130T143000Z", got.GetName())
	require.EqualValues(t, 61, got.GetSlotCount())
	require.Equal(t, first.Add(time.Hour), got.GetUntilTime().AsTime())
	require.Equal(t, "outage", got.GetReason())

	_, err = s.db.Txn(ctx, kv.Txn{Then: []kv.Op{
		kv.Put(store.DefaultPrefix+"history/default/billing/20261130T160000Z", []byte("\xff"), 0),
		kv.Put(store.DefaultPrefix+"history/default/%FF/20261130T160000Z", []byte("\xff"), 0),
	}})
	require.NoError(t, err)
	list, err := s.runs.ListRuns(ctx, &leaderdv1.ListRunsRequest{Parent: "namespaces/-/jobs/-"})
	require.NoError(t, err, "what cannot be read fails no list")
	var names []string
	for _, r := range list.GetRuns() {
		names = append(names, r.GetName()[strings.LastIndex(r.GetName(), "/")+1:]+" "+r.GetState().String())
	}
	require.Equal(t, []string{
		"20261130T160000Z STATE_UNREADABLE",
		"20261130T160000Z STATE_UNREADABLE",
		"20261130T140000Z STATE_MISSED",
		"20261130T120100Z STATE_WAITING",
		"20261130T120000Z STATE_FAILED",
	}, names)
	require.NotEmpty(t, list.GetRuns()[1].GetDetail())
}

func TestListRunsOverTheAPI(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	for _, job := range []string{"a/x", "a/y", "b/x"} {
		for i := range 10 {
			at := noon.Add(time.Duration(i) * time.Minute)
			s.write(t, "history/"+job+"/"+string(state.SlotRunID(at)), codec.RecordToProto(&state.Record{
				State: state.StateSucceeded, Due: at, Detail: fmt.Sprint(i),
			}))
		}
	}
	for parent, want := range map[string]int{
		"namespaces/a/jobs/x": 10, "namespaces/a/jobs/-": 20, "namespaces/-/jobs/x": 20, "namespaces/-/jobs/-": 30, "namespaces/c/jobs/-": 0,
	} {
		seen := map[string]bool{}
		req := &leaderdv1.ListRunsRequest{Parent: parent, PageSize: 7}
		for {
			res, err := s.runs.ListRuns(ctx, req)
			require.NoError(t, err)
			for _, r := range res.GetRuns() {
				require.False(t, seen[r.GetName()])
				seen[r.GetName()] = true
			}
			if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
				break
			}
		}
		require.Len(t, seen, want, parent)
	}
	forged := pageToken("runs of namespaces/a/jobs/-", "b", "x", "3")
	_, err := s.runs.ListRuns(ctx, &leaderdv1.ListRunsRequest{Parent: "namespaces/a/jobs/-", PageToken: forged})
	requireBadFields(t, err, "pageToken")
}

func TestRunStatesHaveTheDomainsNames(t *testing.T) {
	for s := state.StatePending; s <= state.StateMissed; s++ {
		require.Equal(t, "STATE_"+strings.ToUpper(s.String()), runStateOf(s).String())
	}
	// One more is no state of the domain's: STATE_UNREADABLE.
	require.Len(t, leaderdv1.Run_State_name, len(runStates)+1)
	require.Equal(t, leaderdv1.Run_STATE_UNSPECIFIED, runStateOf(200))
}
