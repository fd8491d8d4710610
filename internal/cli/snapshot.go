package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

const (
	snapshotFormat  = "leaderd-snapshot"
	snapshotVersion = 1
	// maxSnapshotLine bounds a line: a job is far smaller.
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
	Calendar json.RawMessage `json:"calendar,omitempty"`
	Job      json.RawMessage `json:"job,omitempty"`
	End      *snapshotEnd    `json:"end,omitempty"`
}

type snapshotEnd struct {
	Calendars int    `json:"calendars"`
	Jobs      int    `json:"jobs"`
	SHA256    string `json:"sha256"`
}

// snapshot is one that was read whole.
type snapshot struct {
	taken     time.Time
	calendars []*leaderdv1.Calendar
	jobs      []*leaderdv1.Job
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

// encode is the file's content.
func (s *snapshot) encode() ([]byte, error) {
	var out bytes.Buffer
	line := func(v any) error {
		b, err := json.Marshal(v)
		out.Write(append(b, '\n'))
		return err
	}
	if err := line(snapshotHeader{snapshotFormat, snapshotVersion, s.taken}); err != nil {
		return nil, err
	}
	for _, c := range s.calendars {
		b, err := protojson.Marshal(c)
		if err == nil {
			err = line(snapshotItem{Calendar: b})
		}
		if err != nil {
			return nil, fmt.Errorf("encode calendar %s: %w", c.GetName(), err)
		}
	}
	for _, j := range s.jobs {
		b, err := protojson.Marshal(j)
		if err == nil {
			err = line(snapshotItem{Job: b})
		}
		if err != nil {
			return nil, fmt.Errorf("encode job %s: %w", j.GetName(), err)
		}
	}
	sum := sha256.Sum256(out.Bytes())
	err := line(snapshotItem{End: &snapshotEnd{len(s.calendars), len(s.jobs), hex.EncodeToString(sum[:])}})
	return out.Bytes(), err
}

// errDamaged: the file is not as it was written.
var errDamaged = errors.New("the snapshot is damaged")

// decodeSnapshot reads a file's content, and checks that it is whole.
func decodeSnapshot(from io.Reader) (*snapshot, error) {
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
	case head.Version != snapshotVersion:
		return nil, fmt.Errorf("it has version %d of the format; this program reads %d", head.Version, snapshotVersion)
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
			if got := hex.EncodeToString(sum.Sum(nil)); got != item.End.SHA256 || item.End.Jobs != len(s.jobs) || item.End.Calendars != len(s.calendars) {
				return nil, fmt.Errorf("%w: its checksum is %s, and should be %s", errDamaged, got, item.End.SHA256)
			}
			return s, nil
		case item.Calendar != nil:
			s.calendars = append(s.calendars, &leaderdv1.Calendar{})
			err = (protojson.UnmarshalOptions{DiscardUnknown: false}).Unmarshal(item.Calendar, s.calendars[len(s.calendars)-1])
		case item.Job != nil:
			s.jobs = append(s.jobs, &leaderdv1.Job{})
			err = (protojson.UnmarshalOptions{DiscardUnknown: false}).Unmarshal(item.Job, s.jobs[len(s.jobs)-1])
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
func writeWhole(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// restoration is what a restore does about one thing.
type restoration struct {
	what string // job a/b
	// how is "create", "replace", "same", or "conflict".
	how string
	// newer is set where it was changed after the snapshot.
	newer bool
	do    func(ctx context.Context) error
}

// diffSnapshot tells what a restore would change.
func diffSnapshot(ctx context.Context, a *api, s *snapshot) ([]restoration, error) {
	now, err := takeSnapshot(ctx, a, s.taken)
	if err != nil {
		return nil, err
	}
	reason := "restored from a snapshot of " + s.taken.Format(time.RFC3339)
	var out []restoration
	for _, c := range s.calendars {
		x := restoration{what: "calendar " + shortCalendar(c.GetName()), how: "create", do: func(ctx context.Context) error {
			_, err := a.calendars.UpdateCalendar(ctx, &leaderdv1.UpdateCalendarRequest{
				Calendar: &leaderdv1.Calendar{Name: c.GetName(), Spec: c.GetSpec()}, AllowMissing: true, Reason: reason,
			})
			return err
		}}
		if i := slices.IndexFunc(now.calendars, func(have *leaderdv1.Calendar) bool { return have.GetName() == c.GetName() }); i >= 0 {
			have := now.calendars[i]
			x.how, x.newer = "conflict", have.GetUpdateTime().AsTime().After(s.taken)
			if proto.Equal(have.GetSpec(), c.GetSpec()) {
				x.how = "same"
			}
		}
		out = append(out, x)
	}
	for _, j := range inOrder(s.jobs, func(j *leaderdv1.Job) *leaderdv1.Job { return j }) {
		x := restoration{what: "job " + shortJob(j.GetName()), how: "create", do: func(ctx context.Context) error { return restoreJob(ctx, a, j, reason) }}
		if i := slices.IndexFunc(now.jobs, func(have *leaderdv1.Job) bool { return have.GetName() == j.GetName() }); i >= 0 {
			have := now.jobs[i]
			x.how, x.newer = "conflict", have.GetUpdateTime().AsTime().After(s.taken)
			if proto.Equal(have.GetSpec(), j.GetSpec()) && have.GetPaused() == j.GetPaused() {
				x.how = "same"
			}
		}
		out = append(out, x)
	}
	return out, nil
}

// restoreJob puts a job as it was, paused if it was. A job that is to be paused is
// paused before its spec changes where it exists.
func restoreJob(ctx context.Context, a *api, j *leaderdv1.Job, reason string) error {
	pause := func() error {
		r := &leaderdv1.PauseJobRequest{Name: j.GetName(), Reason: j.GetPauseReason()}
		if until := j.GetPausedUntil(); until != nil && until.AsTime().After(time.Now()) {
			r.Until = until
		}
		_, err := a.jobs.PauseJob(ctx, r)
		return err
	}
	if j.GetPaused() {
		if err := pause(); err != nil && status.Code(err) != codes.NotFound && status.Code(err) != codes.FailedPrecondition {
			return err
		}
	}
	resp, err := update(ctx, a, &leaderdv1.Job{Name: j.GetName(), Spec: j.GetSpec()}, false, reason)
	if err != nil {
		return err
	}
	switch is := resp.GetJob().GetPaused(); {
	case j.GetPaused() && !is:
		return pause()
	case !j.GetPaused() && is:
		_, err = a.jobs.ResumeJob(ctx, &leaderdv1.ResumeJobRequest{Name: j.GetName(), Reason: reason})
	}
	return err
}
