package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

const (
	// livePage is how many runs of each job are looked at in each round; more that
	// end between two rounds are counted, not shown.
	livePage = 50
	// liveInterval is the default of Live.Interval.
	liveInterval = 500 * time.Millisecond
)

// Live shows runs as they end, one line each, and on a terminal below them a
// status line. It is meant for a cluster of some jobs on the same machine: it
// asks for the runs of every job in each round.
type Live struct {
	Jobs    leaderdv1.JobServiceClient
	Runs    leaderdv1.RunServiceClient
	Cluster leaderdv1.ClusterServiceClient
	// Out takes the lines.
	Out io.Writer
	// TTY adds colours and the status line.
	TTY bool
	// Interval between two rounds. Default: 500ms.
	Interval time.Duration

	shown  map[string]map[string]bool // by job, the runs that were shown or are older than the view
	counts map[leaderdv1.Run_State]int
	live   int
	status string // as it stands on the terminal
}

// Run shows what happens until ctx is done, then returns nil. While the API does
// not answer it says so and goes on. It returns an error only where it cannot
// write.
func (l *Live) Run(ctx context.Context) error {
	if l.Interval == 0 {
		l.Interval = liveInterval
	}
	l.shown, l.counts = map[string]map[string]bool{}, map[leaderdv1.Run_State]int{}
	began := time.Now()
	tick := time.NewTicker(l.Interval)
	defer tick.Stop()
	trouble := ""
	for {
		ended, status, err := l.round(ctx, began)
		if ctx.Err() != nil {
			return l.draw(nil, "")
		}
		if err != nil {
			// The same trouble is told once.
			if status = strings.Join(explain(err), "; "); status != trouble && !l.TTY {
				ended = append(ended, status)
			}
			trouble = status
		} else {
			trouble = ""
		}
		if err := l.draw(ended, status); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return l.draw(nil, "")
		case <-tick.C:
		}
	}
}

// round answers a line for each run that ended since the last one, the earliest
// first, and the status. With an error the lines are of the jobs that were read
// before it; the others' follow in the next round.
func (l *Live) round(ctx context.Context, began time.Time) (lines []string, status string, err error) {
	s, err := l.Cluster.GetClusterStatus(ctx, &leaderdv1.GetClusterStatusRequest{})
	if err != nil {
		return nil, "", err
	}
	var jobs []*leaderdv1.Job
	err = pages(func(token string) (string, error) {
		resp, err := l.Jobs.ListJobs(ctx, &leaderdv1.ListJobsRequest{Parent: "namespaces/-", PageSize: pageSize, PageToken: token, ShowAdhoc: true})
		jobs = append(jobs, resp.GetJobs()...)
		return resp.GetNextPageToken(), err
	})
	if err != nil {
		return nil, "", err
	}
	var ended []*leaderdv1.Run
	live := 0
	for _, job := range jobs {
		var resp *leaderdv1.ListRunsResponse
		resp, err = l.Runs.ListRuns(ctx, &leaderdv1.ListRunsRequest{Parent: job.GetName(), PageSize: livePage})
		if err != nil {
			break
		}
		now := map[string]bool{}
		for _, r := range resp.GetRuns() {
			if !isFinal(r.GetState()) {
				live++
				continue
			}
			now[r.GetName()] = true
			if !l.shown[job.GetName()][r.GetName()] && !endTime(r).Before(began) {
				ended = append(ended, r)
			}
		}
		l.shown[job.GetName()] = now // runs that left the page never come back
	}
	if err == nil {
		l.live = live
	}
	slices.SortFunc(ended, func(a, b *leaderdv1.Run) int {
		if c := endTime(a).Compare(endTime(b)); c != 0 {
			return c
		}
		return strings.Compare(a.GetName(), b.GetName())
	})
	for _, r := range ended {
		l.counts[r.GetState()] += int(max(1, r.GetSlotCount()))
		lines = append(lines, l.line(r))
	}
	return lines, l.statusLine(s), err
}

func isFinal(s leaderdv1.Run_State) bool { return s >= leaderdv1.Run_STATE_SUCCEEDED }

// endTime is when the run ended, or its slot where nothing ran.
func endTime(r *leaderdv1.Run) time.Time {
	if end := lastAttempt(r).GetEndTime(); end != nil {
		return end.AsTime()
	}
	return r.GetDueTime().AsTime()
}

// line is time, job, run, state, lateness, node.
func (l *Live) line(r *leaderdv1.Run) string {
	state := runState(r)
	if r.GetReason() != "" {
		state += ":" + r.GetReason()
	}
	late, node := lateness(r), lastAttempt(r).GetNode()
	if late == "" {
		late = "-"
	}
	if node == "" {
		node = "-"
	}
	padded := fmt.Sprintf("%-12s", printable(state))
	if l.TTY {
		padded = colour(r.GetState()) + padded + plain
	}
	return fmt.Sprintf("%s  %-20s  %-18s  %s  %9s  %s", endTime(r).UTC().Format("2006-01-02T15:04:05.000Z"),
		printable(shortJob(r.GetName())), printable(runID(r.GetName())), padded, late, printable(node))
}

func (l *Live) statusLine(s *leaderdv1.GetClusterStatusResponse) string {
	leader := s.GetLeader()
	if leader == "" {
		leader = "none"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "leader %s  term %d  live %d", printable(leader), s.GetTerm(), l.live)
	for state := leaderdv1.Run_STATE_SUCCEEDED; state <= leaderdv1.Run_STATE_MISSED; state++ {
		if n := l.counts[state]; n > 0 {
			fmt.Fprintf(&out, "  %s %d", stateName(state), n)
		}
	}
	if late := s.GetLateness(); late != nil {
		out.WriteString("  p99 late " + protoSpan(late.GetP99()))
	}
	return out.String()
}

// Codes that terminals know.
const (
	plain     = "\x1b[0m"
	dim       = "\x1b[2m"
	eraseLine = "\r\x1b[K"
	noWrap    = "\x1b[?7l"
	wrap      = "\x1b[?7h"
)

func colour(s leaderdv1.Run_State) string {
	switch s { //nolint:exhaustive // the rest ended badly
	case leaderdv1.Run_STATE_SUCCEEDED:
		return "\x1b[32m"
	case leaderdv1.Run_STATE_SKIPPED, leaderdv1.Run_STATE_CANCELLED, leaderdv1.Run_STATE_INTERRUPTED:
		return "\x1b[33m"
	}
	return "\x1b[31m"
}

// draw writes the lines in place of the status line, and the new one below them.
// The last status stays as long as it is true, so that a quiet cluster writes
// nothing.
func (l *Live) draw(lines []string, status string) error {
	if !l.TTY {
		status = ""
	}
	if len(lines) == 0 && status == l.status {
		return nil
	}
	var b strings.Builder
	if l.status != "" {
		b.WriteString(eraseLine)
	}
	for _, line := range lines {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	if status != "" {
		// A status line that wraps could not be erased.
		b.WriteString(noWrap + dim + status + plain + wrap)
	}
	l.status = status
	_, err := io.WriteString(l.Out, b.String())
	return err
}
