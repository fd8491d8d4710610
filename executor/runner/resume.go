package runner

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// Headers of requests and answers that carry checkpoints.
const (
	checkpointHeader = "Leaderd-Checkpoint"
	checkpointNumber = "Leaderd-Checkpoint-Number"
	checkpointBody   = "Leaderd-Checkpoint-Body"
	// maxCheckpointHeader is how large a checkpoint may be to be sent in a header:
	// servers refuse headers of more than about 8 KiB.
	maxCheckpointHeader = 4 << 10
)

// resume gives a request the last checkpoint, where the job works with them.
func resume(ctx context.Context, t *Task, req *http.Request) error {
	if t.Checkpoint == nil || t.Keeper == nil {
		return nil
	}
	last, err := t.Keeper.Checkpoint(ctx)
	if err != nil {
		return fmt.Errorf("the last checkpoint: %w", err)
	}
	req.Header.Set(checkpointNumber, strconv.FormatInt(last.Number, 10))
	switch {
	case t.Checkpoint.Body:
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(last.Data)), int64(len(last.Data))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(last.Data)), nil }
	case last.Number > 0 && len(last.Data) <= maxCheckpointHeader:
		req.Header.Set(checkpointHeader, base64.StdEncoding.EncodeToString(last.Data))
	}
	return nil
}

// keepAnswer saves the checkpoint that an answer has: its body, where that is not nil. It
// does so although the attempt is being stopped: what was done was done.
func keepAnswer(ctx context.Context, t *Task, resp *http.Response, body *bytes.Buffer) error {
	if t.Checkpoint == nil || t.Keeper == nil {
		return nil
	}
	var data []byte
	if body != nil {
		data = body.Bytes()
	} else {
		text := resp.Header.Values(checkpointHeader)
		if len(text) == 0 {
			return nil
		}
		var err error
		if data, err = base64.StdEncoding.DecodeString(text[0]); err != nil {
			return fmt.Errorf("the response's header %s: %w", checkpointHeader, err)
		}
	}
	if err := t.Keeper.Save(context.WithoutCancel(ctx), data); err != nil {
		return fmt.Errorf("the response's checkpoint is not saved: %w", err)
	}
	return nil
}

// limited takes the first bytes of what is written, and drops the rest.
type limited struct {
	to   *bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	l.to.Write(p[:n])
	return len(p), nil
}
