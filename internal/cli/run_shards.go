package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func runShards(d Deps, o *dialer) *cobra.Command {
	var (
		ns     namespace
		states []string
		f      format
	)
	c := &cobra.Command{
		Use:   "shards JOB RUN",
		Short: "List the shards of a run",
		Long: `List the shards of a run, in order: where each is, on which node, since when, and what
it was given. A run that lists its shards has its first step, list, before them. A run
that is not split has none.`,
		Example: `  leaderd run shards reindex 20261130T020000Z
  leaderd run shards reindex 20261130T020000Z --state failed,running`,
		Args: wantArgs("JOB", "RUN"),

		ValidArgsFunction: o.completeRun(&ns),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			job, err := ns.job(args[0])
			if err != nil {
				return err
			}
			if args[1] == "" || strings.Contains(args[1], "/") {
				return usagef("%q is not a run's id, such as 20261130T020000Z", args[1])
			}
			only, err := statesOf(states)
			if err != nil {
				return err
			}
			return listShards(ctx, d, a, job+"/runs/"+args[1], f, only)
		}),
	}
	ns.bind(c, o)
	c.Flags().StringSliceVar(&states, "state", nil, "only shards in these states, such as failed,running")
	f.bind(c)
	complete(c, "state", cobra.FixedCompletions(stateNames(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

// listShards prints the shards of a run in some states, all where there are none.
func listShards(ctx context.Context, d Deps, a *api, run string, f format, only []leaderdv1.Run_State) error {
	p := &listPrinter[*leaderdv1.Shard]{
		w: d.Stdout, f: f,
		table: newTable(d.Stdout, "SHARD", "STATE", "REASON", "NODE", "TRIES", "STARTED", "TOOK", "CODE", "GIVEN", "ERROR"),
		row:   func(s *leaderdv1.Shard) []string { return shardRow(s, time.Now()) },
	}
	req := &leaderdv1.ListShardsRequest{Name: run, PageSize: pageSize}
	err := pages(func(token string) (string, error) {
		req.PageToken = token
		resp, err := a.runs.ListShards(ctx, req)
		if err != nil {
			return "", err
		}
		for _, s := range resp.GetShards() {
			if len(only) > 0 && !slices.Contains(only, s.GetState()) {
				continue
			}
			if err := p.print(s); err != nil {
				return "", err
			}
		}
		return resp.GetNextPageToken(), nil
	})
	if err != nil {
		return err
	}
	return p.end()
}

func shardRow(s *leaderdv1.Shard, now time.Time) []string {
	row := []string{shardName(s.GetNumber()), stateName(s.GetState()), s.GetReason(), s.GetNode(), "0", "", "", "", given(s), ""}
	n := len(s.GetAttempts())
	if s.GetCarriedFrom() != "" {
		row[2] = "carried from " + runID(s.GetCarriedFrom())
		return row
	}
	if n == 0 {
		return row
	}
	a := s.GetAttempts()[n-1]
	row[3], row[4], row[5], row[9] = a.GetNode(), strconv.Itoa(int(a.GetNumber())), instant(a.GetStartTime()), a.GetError()
	if a.GetStartTime() == nil {
		row[5] = instant(a.GetClaimTime())
	}
	row[6] = took(&leaderdv1.Run{Attempts: []*leaderdv1.Attempt{a}, DueTime: a.GetClaimTime()}, now)
	if a.ExitCode != nil {
		row[7] = strconv.Itoa(int(a.GetExitCode()))
	}
	return row
}

// listShard is the number of the first step of a run that lists its shards.
const listShard = -2

func shardName(n int32) string {
	if n == listShard {
		return "list"
	}
	return strconv.Itoa(int(n))
}

// shardNumber is a shard as a flag names it: its number, or list.
type shardNumber int32

// String implements pflag.Value.
func (n *shardNumber) String() string { return shardName(int32(*n)) }

// Type implements pflag.Value.
func (n *shardNumber) Type() string { return "shard" }

// Set implements pflag.Value. The number of the first step is taken as well.
func (n *shardNumber) Set(text string) error {
	if text == shardName(listShard) {
		*n = listShard
		return nil
	}
	number, err := strconv.ParseInt(text, 10, 32)
	if err != nil || number < 0 && number != listShard {
		return fmt.Errorf("%q is neither a number from 0 nor %s", text, shardName(listShard))
	}
	*n = shardNumber(number)
	return nil
}

// given is what a shard was given: its numbers and parameters.
func given(s *leaderdv1.Shard) string {
	var parts []string
	if s.RangeFrom != nil {
		if s.GetRangeTo() < s.GetRangeFrom() {
			parts = append(parts, "nothing")
		} else {
			parts = append(parts, fmt.Sprintf("%d..%d", s.GetRangeFrom(), s.GetRangeTo()))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.GetParams())) {
		parts = append(parts, name+"="+s.GetParams()[name])
	}
	return strings.Join(parts, " ")
}

// shardCounts is how far a run is that is split.
func shardCounts(n *leaderdv1.ShardCounts) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d of %d succeeded", n.GetSucceeded(), n.GetTotal())
	if n.GetCarried() > 0 {
		fmt.Fprintf(&text, " (%d carried over)", n.GetCarried())
	}
	for _, x := range []struct {
		n    int32
		what string
	}{{n.GetFailed(), "ended otherwise"}, {n.GetRunning(), "running"}, {n.GetWaiting(), "waiting"}, {n.GetPending(), "pending"}} {
		if x.n > 0 {
			fmt.Fprintf(&text, ", %d %s", x.n, x.what)
		}
	}
	if n.GetMinSuccess() < n.GetTotal() {
		fmt.Fprintf(&text, "; %d are needed", n.GetMinSuccess())
	}
	return text.String()
}

// tookTogether is the time from the first start of a shard to the last end, until now
// where one runs or is to come.
func tookTogether(r *leaderdv1.Run, now time.Time) string {
	var first, last time.Time
	for _, a := range r.GetAttempts() {
		start, _ := begun(a, r.GetDueTime().AsTime())
		if !start.IsZero() && (first.IsZero() || start.Before(first)) {
			first = start
		}
		if end := a.GetEndTime(); end != nil && end.AsTime().After(last) {
			last = end.AsTime()
		}
	}
	switch {
	case first.IsZero() || first.After(now):
		return ""
	case !isFinal(r.GetState()):
		return span(now.Sub(first)) + "..."
	}
	return span(last.Sub(first))
}
