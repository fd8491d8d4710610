package cli

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

const (
	snapshotFormat = "leaderd-snapshot"
	// snapshotVersion is that of files with checkpoints. Those before have none, and
	// are read too.
	snapshotVersion = 2
	// maxSnapshotLine bounds a line: a job and a checkpoint are far smaller.
	maxSnapshotLine = 4 << 20
)

// snapshotHeader is the first line of a snapshot. Each line is a JSON object; the last
// one has the checksum of all before it.
type snapshotHeader struct {
	Format  string    `json:"format"`
	Version int       `json:"version"`
	Taken   time.Time `json:"taken"`
}

// snapshotItem is any other line: one of its fields is set.
type snapshotItem struct {
	Calendar   json.RawMessage `json:"calendar,omitempty"`
	Job        json.RawMessage `json:"job,omitempty"`
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`
	End        *snapshotEnd    `json:"end,omitempty"`
}

type snapshotEnd struct {
	Calendars   int    `json:"calendars"`
	Jobs        int    `json:"jobs"`
	Checkpoints int    `json:"checkpoints"`
	SHA256      string `json:"sha256"`
}

// snapshot is one that was read whole. Its checkpoints stay in the file: they may be more
// than there is memory for.
type snapshot struct {
	taken       time.Time
	calendars   []*leaderdv1.Calendar
	jobs        []*leaderdv1.Job
	checkpoints int
}

// takeSnapshot asks the cluster for all that a snapshot has.
func takeSnapshot(ctx context.Context, a *api, now time.Time) (*snapshot, error) {
	s := &snapshot{taken: now.UTC().Truncate(time.Second)}
	err := pages(func(token string) (string, error) {
		resp, err := a.calendars.ListCalendars(ctx, &leaderdv1.ListCalendarsRequest{Parent: "namespaces/-", PageSize: pageSize, PageToken: token})
		s.calendars = append(s.calendars, resp.GetCalendars()...)
		return resp.GetNextPageToken(), err
	})
	if err != nil {
		return nil, err
	}
	err = pages(func(token string) (string, error) {
		resp, err := a.jobs.ListJobs(ctx, &leaderdv1.ListJobsRequest{Parent: "namespaces/-", PageSize: pageSize, PageToken: token})
		s.jobs = append(s.jobs, resp.GetJobs()...)
		return resp.GetNextPageToken(), err
	})
	if err != nil {
		return nil, err
	}
	for _, c := range s.calendars {
		if c.GetQuarantine() != "" {
			return nil, fmt.Errorf("calendar %s cannot be read and would be missing: %s", shortCalendar(c.GetName()), c.GetQuarantine())
		}
	}
	for _, j := range s.jobs {
		if j.GetSpec() == nil {
			return nil, fmt.Errorf("job %s cannot be read and would be missing: %s", shortJob(j.GetName()), j.GetQuarantine())
		}
	}
	return s, nil
}

// eachCheckpoint calls do for the checkpoints that outlive runs of the snapshot's jobs.
func (s *snapshot) eachCheckpoint(ctx context.Context, a *api, do func(*leaderdv1.JobCheckpoint) error) error {
	has := make(map[string]bool, len(s.jobs))
	for _, j := range s.jobs {
		has[j.GetName()] = true
	}
	return pages(func(token string) (string, error) {
		resp, err := a.saved.ListCheckpoints(ctx, &leaderdv1.ListCheckpointsRequest{Parent: "namespaces/-", PageToken: token})
		for _, c := range resp.GetCheckpoints() {
			if err == nil && has[c.GetJob()] { // else it was made for a submission, or since
				err = do(c)
			}
		}
		return resp.GetNextPageToken(), err
	})
}

// write writes the file's content. each calls do for what its checkpoints are to be.
func (s *snapshot) write(w io.Writer, each func(do func(*leaderdv1.JobCheckpoint) error) error) error {
	sum := sha256.New()
	out := bufio.NewWriter(io.MultiWriter(w, sum))
	line := func(v any) error {
		b, err := json.Marshal(v)
		if err == nil {
			_, err = out.Write(append(b, '\n'))
		}
		return err
	}
	item := func(what, name string, m proto.Message, of func(json.RawMessage) snapshotItem) error {
		b, err := protojson.Marshal(m)
		if err == nil {
			err = line(of(b))
		}
		if err != nil {
			return fmt.Errorf("write %s %s: %w", what, name, err)
		}
		return nil
	}
	if err := line(snapshotHeader{snapshotFormat, snapshotVersion, s.taken}); err != nil {
		return err
	}
	for _, c := range s.calendars {
		if err := item("calendar", c.GetName(), c, func(b json.RawMessage) snapshotItem { return snapshotItem{Calendar: b} }); err != nil {
			return err
		}
	}
	for _, j := range s.jobs {
		if err := item("job", j.GetName(), j, func(b json.RawMessage) snapshotItem { return snapshotItem{Job: b} }); err != nil {
			return err
		}
	}
	if err := each(func(c *leaderdv1.JobCheckpoint) error {
		s.checkpoints++
		return item("checkpoint of", c.GetJob(), c, func(b json.RawMessage) snapshotItem { return snapshotItem{Checkpoint: b} })
	}); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := line(snapshotItem{End: &snapshotEnd{len(s.calendars), len(s.jobs), s.checkpoints, hex.EncodeToString(sum.Sum(nil))}}); err != nil {
		return err
	}
	return out.Flush()
}

// errDamaged: the file is not as it was written.
var errDamaged = errors.New("the snapshot is damaged")

// decodeSnapshot reads a file's content, and checks that it is whole. It calls each, where
// that is not nil, for every checkpoint in it, in order.
func decodeSnapshot(from io.Reader, each func(*leaderdv1.JobCheckpoint) error) (*snapshot, error) {
	sum := sha256.New()
	r := bufio.NewReaderSize(from, 64<<10)
	var head snapshotHeader
	first, err := snapshotLine(r)
	if err == nil {
		err = json.Unmarshal(first, &head)
	}
	switch {
	case err != nil || head.Format != snapshotFormat:
		return nil, errors.New("this is no snapshot of leaderd")
	case head.Version < 1 || head.Version > snapshotVersion:
		return nil, fmt.Errorf("it has version %d of the format; this program reads 1–%d", head.Version, snapshotVersion)
	}
	sum.Write(first)
	s := &snapshot{taken: head.Taken}
	for n := 2; ; n++ {
		line, err := snapshotLine(r)
		if err != nil {
			return nil, fmt.Errorf("%w: it ends at line %d: %w", errDamaged, n, err)
		}
		var item snapshotItem
		if err := json.Unmarshal(line, &item); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", errDamaged, n, err)
		}
		switch {
		case item.End != nil:
			if got := hex.EncodeToString(sum.Sum(nil)); got != item.End.SHA256 || item.End.Jobs != len(s.jobs) || item.End.Calendars != len(s.calendars) ||
				item.End.Checkpoints != s.checkpoints {
				return nil, fmt.Errorf("%w: its checksum is %s, and should be %s", errDamaged, got, item.End.SHA256)
			}
			return s, nil
		case item.Calendar != nil:
			s.calendars = append(s.calendars, &leaderdv1.Calendar{})
			err = (protojson.UnmarshalOptions{DiscardUnknown: false}).Unmarshal(item.Calendar, s.calendars[len(s.calendars)-1])
		case item.Job != nil:
			s.jobs = append(s.jobs, &leaderdv1.Job{})
			err = (protojson.UnmarshalOptions{DiscardUnknown: false}).Unmarshal(item.Job, s.jobs[len(s.jobs)-1])
		case item.Checkpoint != nil:
			c := &leaderdv1.JobCheckpoint{}
			s.checkpoints++
			if err = (protojson.UnmarshalOptions{DiscardUnknown: false}).Unmarshal(item.Checkpoint, c); err == nil && each != nil {
				if err := each(c); err != nil {
					return nil, err
				}
			}
		}
		if err != nil {
			return nil, fmt.Errorf("line %d, perhaps of a newer version: %w", n, err)
		}
		sum.Write(line)
	}
}

// snapshotLine reads a line with its end.
func snapshotLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) > maxSnapshotLine:
			return nil, fmt.Errorf("a line of more than %d bytes", maxSnapshotLine)
		}
	}
}

// writeWhole writes a file so that it is there whole or not at all.
func writeWhole(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
