package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

func TestDeadLetters(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var names []string
	for i := range 3 {
		due := noon.Add(time.Duration(i) * time.Minute)
		rec := &state.Record{
			State: state.StateFailed, Reason: state.ReasonAttempts, Due: due, Tries: 2, Tail: []byte("no disk"),
			Attempts: []state.Attempt{{Number: 1, Node: "n1", State: state.StateFailed}, {Number: 2, Node: "n2", State: state.StateFailed}},
		}
		s.write(t, "dead/default/a/"+string(state.SlotRunID(due)), codec.RecordToProto(rec))
		names = append(names, "namespaces/default/jobs/a/runs/"+string(state.SlotRunID(due)))
	}
	s.writeRaw(t, "dead/default/b/"+string(state.SlotRunID(noon)), "\xff")
	list := func(parent string) (got []*leaderdv1.Run) {
		req := &leaderdv1.ListDeadLettersRequest{Parent: parent, PageSize: 2}
		for {
			res, err := s.dead.ListDeadLetters(ctx, req)
			require.NoError(t, err)
			for _, d := range res.GetDeadLetters() {
				got = append(got, d.GetRun())
			}
			if req.PageToken = res.GetNextPageToken(); req.GetPageToken() == "" {
				return got
			}
		}
	}
	all := list("namespaces/-/jobs/-")
	require.Len(t, all, 4)
	require.Equal(t, leaderdv1.Run_STATE_UNREADABLE, all[3].GetState())
	require.Empty(t, list("namespaces/other/jobs/-"))
	of := list("namespaces/default/jobs/a")
	require.Len(t, of, 3)
	require.Equal(t, names[0], of[0].GetName())
	require.Equal(t, "attempts", of[0].GetReason())
	require.EqualValues(t, 2, of[0].GetTries())

	got, err := s.dead.GetDeadLetter(ctx, &leaderdv1.GetDeadLetterRequest{Name: names[1]})
	require.NoError(t, err)
	require.Equal(t, "no disk", string(got.GetDeadLetter().GetRun().GetOutputTail()))

	requeue := &leaderdv1.RequeueDeadLetterRequest{Name: names[1], Reason: "mended"}
	_, err = s.dead.RequeueDeadLetter(ctx, requeue)
	requireFailure(t, err, codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_DEAD_LETTER_NOT_FOUND)
	require.Len(t, list("namespaces/default/jobs/a"), 3, "there is no such job, and nothing is lost")
	s.put(t, "namespaces/default/jobs/a", &leaderdv1.JobSpec{Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}}})
	again, err := s.dead.RequeueDeadLetter(ctx, requeue)
	require.NoError(t, err)
	fresh, err := s.runs.GetRun(ctx, &leaderdv1.GetRunRequest{Name: again.GetRun()})
	require.NoError(t, err)
	require.Equal(t, names[1], fresh.GetRun().GetOrigin())
	_, err = s.dead.RequeueDeadLetter(ctx, requeue)
	requireFailure(t, err, codes.NotFound, leaderdv1.ErrorReason_ERROR_REASON_DEAD_LETTER_NOT_FOUND)

	_, err = s.dead.DropDeadLetter(ctx, &leaderdv1.DropDeadLetterRequest{Name: names[0]})
	require.NoError(t, err)
	left := list("namespaces/default/jobs/a")
	require.Len(t, left, 1)
	require.Equal(t, names[2], left[0].GetName())

	_, err = s.dead.GetDeadLetter(ctx, &leaderdv1.GetDeadLetterRequest{Name: "a"})
	requireFailure(t, err, codes.InvalidArgument, leaderdv1.ErrorReason_ERROR_REASON_BAD_FIELD)
}
