package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaderd/leaderd/internal/ledger"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func clusterCommand(d Deps) *cobra.Command {
	o := &dialer{}
	c := group("cluster", "Look at the cluster", clusterStatus(d, o))
	o.bind(c.PersistentFlags(), d)
	return c
}

func clusterStatus(d Deps, o *dialer) *cobra.Command {
	var f format
	var wait time.Duration
	c := &cobra.Command{
		Use:   "status",
		Short: "Show leader, timeline and nodes",
		Args:  noArgs,
		RunE: o.with(func(ctx context.Context, a *api, _ []string) error {
			s, err := led(ctx, a, wait)
			if err != nil {
				return err
			}
			if f != formatTable {
				return printOne(d.Stdout, f, s)
			}
			return printStatus(d.Stdout, s)
		}),
	}
	f.bind(c)
	c.Flags().DurationVar(&wait, "wait", 0, "ask until a control node answers and a node leads, for so long at most; 0: once")
	return c
}

// betweenLooks is the pause between two questions of a command that waits.
const betweenLooks = 500 * time.Millisecond

// led answers the cluster's status. With a wait it asks until a node leads, or the
// wait is over; no answer and no leader are then errors.
func led(ctx context.Context, a *api, wait time.Duration) (*leaderdv1.GetClusterStatusResponse, error) {
	if wait < 0 {
		return nil, usagef("--wait: %s is negative", wait)
	}
	over := time.After(wait)
	for {
		s, err := a.cluster.GetClusterStatus(ctx, &leaderdv1.GetClusterStatusRequest{})
		if wait == 0 || err == nil && leads(s) || err != nil && !passing(err) {
			return s, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-over:
			if err == nil {
				err = fmt.Errorf("no node leads after %s", wait)
			}
			return nil, err
		case <-time.After(betweenLooks):
		}
	}
}

// passing tells whether an error may pass by itself.
func passing(err error) bool {
	api, ok := errors.AsType[*apiError](err)
	return ok && (status.Code(api.err) == codes.Unavailable || status.Code(api.err) == codes.DeadlineExceeded)
}

// leads tells whether a node that is there leads.
func leads(s *leaderdv1.GetClusterStatusResponse) bool {
	return s.GetLeader() != "" && slices.ContainsFunc(s.GetNodes(), (*leaderdv1.Node).GetLeader)
}

func printStatus(w io.Writer, s *leaderdv1.GetClusterStatusResponse) error {
	t := newTable(w)
	leader := s.GetLeader()
	if leader == "" {
		leader = "none"
	} else if !leads(s) {
		leader += " (last known; it is not registered any more)"
	}
	t.row("leader:", leader)
	t.row("term:", strconv.FormatInt(s.GetTerm(), 10))
	t.row("watermark:", instant(s.GetWatermark()))
	t.row("watermark lag:", protoSpan(s.GetWatermarkLag()))
	t.row("jobs:", strconv.FormatInt(s.GetJobs(), 10))
	if n := s.GetQuarantinedJobs(); n > 0 {
		t.row("quarantined:", strconv.FormatInt(n, 10))
	}
	if l := s.GetLateness(); l != nil {
		t.row("lateness:", fmt.Sprintf("p50 %s, p99 %s, max %s (%d starts)",
			protoSpan(l.GetP50()), protoSpan(l.GetP99()), protoSpan(l.GetMax()), l.GetStarts()))
	}
	if l := s.GetLate(); l != nil {
		t.row("late now:", fmt.Sprintf("%d runs, the worst %s, due %s (%s ago)%s",
			l.GetRuns(), shortJob(l.GetWorstJob()), instant(l.GetWorstDueTime()), protoSpan(l.GetWorst()), lateReason(l)))
	}
	for _, n := range s.GetNodes() {
		if n.GetClockAhead() != nil {
			t.row("clock off:", fmt.Sprintf("%s, %s against the leader's", n.GetName(), ahead(n.GetClockAhead().AsDuration())))
		}
	}
	t.row("answered by:", s.GetAnsweredBy())
	t.row("zone data:", s.GetZoneData())
	if err := t.flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	nodes := newTable(w, "NODE", "ROLES", "ADDRESS", "CAPACITY", "VERSION", "STARTED", "LABELS")
	for _, n := range s.GetNodes() {
		name := n.GetName()
		if n.GetLeader() {
			name += " (leader)"
		}
		nodes.row(name, roles(n), n.GetAddress(), strconv.Itoa(int(n.GetCapacity())), n.GetVersion(),
			instant(n.GetStartTime()), labels(n.GetLabels()))
	}
	return nodes.flush()
}

// lateReason is why the worst has not started, where the leader says so.
func lateReason(l *leaderdv1.LateRuns) string {
	if l.GetReason() == "" {
		return ""
	}
	for _, r := range ledger.Reasons() {
		if r.Name == l.GetReason() {
			return ": " + r.Name + ", " + r.Means
		}
	}
	return ": " + l.GetReason() // a newer leader's
}

// ahead tells how far a clock is ahead or behind.
func ahead(d time.Duration) string {
	if d < 0 {
		return "-" + span(-d)
	}
	return "+" + span(d)
}

func roles(n *leaderdv1.Node) string {
	var out []string
	if n.GetControl() {
		out = append(out, "control")
	}
	if n.GetExecutor() {
		out = append(out, "executor")
	}
	return strings.Join(out, ",")
}

func labels(m map[string]string) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, key+"="+m[key])
	}
	return strings.Join(out, ",")
}
