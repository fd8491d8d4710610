package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func TestSnapshotFiles(t *testing.T) {
	saved := []*leaderdv1.JobCheckpoint{
		{Job: "namespaces/default/jobs/a", Checkpoint: &leaderdv1.Checkpoint{Number: 3, Data: []byte("x\n\x00")}},
		{Job: "namespaces/default/jobs/a", Shard: 7, Checkpoint: &leaderdv1.Checkpoint{Number: 1, Data: make([]byte, 256<<10)}},
	}
	s := &snapshot{taken: time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC), jobs: []*leaderdv1.Job{{Name: "namespaces/default/jobs/a"}}}
	var file bytes.Buffer
	require.NoError(t, s.write(&file, func(do func(*leaderdv1.JobCheckpoint) error) error {
		for _, c := range saved {
			if err := do(c); err != nil {
				return err
			}
		}
		return nil
	}))
	var read []*leaderdv1.JobCheckpoint
	got, err := decodeSnapshot(bytes.NewReader(file.Bytes()), func(c *leaderdv1.JobCheckpoint) error {
		read = append(read, c)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 2, got.checkpoints)
	require.Len(t, got.jobs, 1)
	require.Len(t, read, 2)
	for i := range saved {
		require.Equal(t, saved[i].GetShard(), read[i].GetShard())
		require.Equal(t, saved[i].GetCheckpoint().GetData(), read[i].GetCheckpoint().GetData())
	}
	lines := bytes.SplitAfter(file.Bytes(), []byte("\n"))
	for i := 1; i < len(lines)-2; i++ { // a line that is lost, whichever
		without := bytes.Join(append(append([][]byte(nil), lines[:i]...), lines[i+1:]...), nil)
		_, err := decodeSnapshot(bytes.NewReader(without), nil)
		require.ErrorIs(t, err, errDamaged)
	}

	// Of the version before, which had no checkpoints; and of one that is to come.
	content := "{\"format\":\"leaderd-snapshot\",\"version\":1,\"taken\":\"2026-11-30T02:00:00Z\"}\n{\"job\":{\"name\":\"namespaces/default/jobs/a\"}}\n"
	sum := sha256.Sum256([]byte(content))
	content += fmt.Sprintf("{\"end\":{\"calendars\":0,\"jobs\":1,\"sha256\":%q}}\n", hex.EncodeToString(sum[:]))
	old, err := decodeSnapshot(bytes.NewReader([]byte(content)), nil)
	require.NoError(t, err)
	require.Len(t, old.jobs, 1)
	_, err = decodeSnapshot(bytes.NewReader(bytes.Replace(file.Bytes(), []byte("\"version\":2"), []byte("\"version\":3"), 1)), nil)
	require.ErrorContains(t, err, "version 3")
}

// A pause that would have ended by now is not put back: without its end it would last for
// ever.
func TestPausesThatAreOver(t *testing.T) {
	now := time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		job  *leaderdv1.Job
		want bool
	}{
		{&leaderdv1.Job{}, false},
		{&leaderdv1.Job{Paused: true}, true},
		{&leaderdv1.Job{Paused: true, PausedUntil: timestamppb.New(now.Add(time.Second))}, true},
		{&leaderdv1.Job{Paused: true, PausedUntil: timestamppb.New(now)}, false},
	} {
		require.Equal(t, c.want, pausedAt(c.job, now))
	}
}
