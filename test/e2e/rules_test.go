package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// must runs the command line and requires that it succeeds; it answers what it printed.
func (c *cluster) must(stdin string, args ...string) string {
	c.t.Helper()
	code, stdout, stderr := c.cli(stdin, args...)
	require.Zero(c.t, code, "%v: %s%s", args, stdout, stderr)
	return stdout
}

// TestCalendar has a job avoid a calendar by the command line alone: over a failover
// no slot in it runs and every other does, explain tells of both, the job follows a
// change, and the checker finds nothing wrong.
func TestCalendar(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 2})
	begin := time.Now().UTC().Truncate(time.Second).Add(8 * time.Second)
	end := begin.Add(6 * time.Second)
	stamp := func(at time.Time) string { return at.Format(time.RFC3339) }
	require.Equal(t, "default/break created\n", c.must(fmt.Sprintf(`name: break
spec:
  entries:
    - {name: works, period: {start: %q, end: %q}}
`, stamp(begin), stamp(end)), "calendar", "apply", "-f", "-"))
	c.must(`name: tick
spec:
  schedules: ["* * * * * *"]
  excludedCalendars: [break]
  noop: {}
`, "job", "apply", "-f", "-")
	from := settled()
	require.True(t, from.Before(begin), "the machine is too slow for this test's times")
	c.awaitWatermark(begin.Add(2 * time.Second))
	killed := c.leader()
	killed.kill()
	c.awaitWatermark(end.Add(3 * time.Second))

	for at := from; !at.After(end.Add(2 * time.Second)); at = at.Add(time.Second) {
		run := c.run(jobName("tick") + "/runs/" + at.UTC().Format("20060102T150405Z"))
		require.NotNil(t, run, at)
		if at.Before(begin) || !at.Before(end) {
			require.NotEqual(t, "calendar", run.GetReason(), at)
			continue
		}
		require.Equal(t, "skipped:calendar", stateName(run.GetState())+":"+run.GetReason(), at)
	}
	explained := c.must("", "job", "explain", "tick", "--at", stamp(begin))
	require.Contains(t, explained, "answer:   skipped:calendar\n")
	require.Contains(t, explained, "in calendar break: works, ")
	require.NotContains(t, c.must("", "job", "explain", "tick", "--at", stamp(end)), "calendar break", "its end is no part of it")

	later := `name: break
spec:
  entries:
    - {name: closed, weekly: {days: [MON-SUN], from: "00:00", to: "24:00"}}
`
	require.Equal(t, "default/break updated, 1 jobs follow (dry run)\n", c.must(later, "calendar", "apply", "-f", "-", "--dry-run"))
	require.Equal(t, "default/break updated, 1 jobs follow\n", c.must(later, "calendar", "apply", "-f", "-"))
	soon := time.Now().UTC().Truncate(time.Second).Add(time.Hour)
	explained = c.must("", "job", "explain", "tick", "--at", stamp(soon))
	require.Contains(t, explained, "answer:   excluded\n")
	require.Contains(t, explained, "it will be skipped:calendar: in calendar break: closed")
	c.awaitWatermark(settled().Add(2 * time.Second))
	code, _, stderr := c.cli("", "calendar", "delete", "break")
	require.NotZero(t, code)
	require.Contains(t, stderr, "is named by jobs: tick")
	require.Contains(t, c.must("", "verify"), "violations:  none\n")
	c.must("", "job", "delete", "tick")
	require.Equal(t, "default/break deleted\n", c.must("", "calendar", "delete", "break"))
}

// TestCancelRun cancels a run that waits and one that is at work, the latter while
// there is another leader: the first never starts, and of the second no process is left.
func TestCancelRun(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 2})
	c.apply(c.shellJob("long", "", "sleep 600 & wait\n", func(s *leaderdv1.JobSpec) {
		s.Overlap, s.QueueLimit, s.KillGrace = leaderdv1.Overlap_OVERLAP_QUEUE, 5, durationpb.New(time.Second)
	}))
	id := func(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
	first := c.trigger("long")
	await(t, "the first run is at work", func(context.Context) error {
		if n := len(c.startsOf("long")); n != 1 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	second, third := c.trigger("long"), c.trigger("long")
	require.Equal(t, "default/long "+id(second)+" cancelled\n", c.must("", "run", "cancel", "long", id(second), "--reason", "not this one"))
	run := c.run(second)
	require.Equal(t, leaderdv1.Run_STATE_CANCELLED, run.GetState())
	require.Equal(t, "requested", run.GetReason())
	require.Contains(t, run.GetDetail(), "not this one")
	require.EqualValues(t, 1, run.GetJobGeneration())

	at := c.run(first).GetAttempts()
	worker := at[len(at)-1].GetNode()
	if leader := c.leader(); leader.name != worker {
		leader.kill() // the wish outlives the leader
	}
	require.Equal(t, "default/long "+id(first)+" is being stopped\n", c.must("", "run", "cancel", "long", id(first)))
	run = c.awaitRun(first)
	require.Equal(t, leaderdv1.Run_STATE_CANCELLED, run.GetState())
	require.Equal(t, "requested", run.GetReason())
	await(t, "the run that waited is at work", func(context.Context) error {
		if s := c.run(third).GetState(); s != leaderdv1.Run_STATE_RUNNING {
			return fmt.Errorf("it is %s", s)
		}
		return nil
	})
	c.must("", "run", "cancel", "long", id(third))
	require.Equal(t, leaderdv1.Run_STATE_CANCELLED, c.awaitRun(third).GetState())
	require.Contains(t, c.must("", "run", "cancel", "long", id(third)), " cancelled\n", "asked again")
	code, _, stderr := c.cli("", "run", "cancel", "long", id(third), "--reason", "another")
	require.NotZero(t, code, "it is over")
	require.Contains(t, stderr, "over")
	await(t, "its processes are gone", func(context.Context) error {
		for _, n := range c.nodes {
			if n.running() && len(children(t, n.cmd.Process.Pid)) > 0 {
				return fmt.Errorf("%s has some", n.name)
			}
		}
		return nil
	})
	require.Len(t, c.startsOf("long"), 2)
}
