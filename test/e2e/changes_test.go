package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func seconds(n float64) *durationpb.Duration {
	return durationpb.New(time.Duration(n * float64(time.Second)))
}

// TestChanges pauses, resumes, edits, deletes and makes anew 50 jobs that are due
// every second, at all moments of that second: nothing starts by a claim that is
// newer than the change, and no slot goes without a verdict.
func TestChanges(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 2})
	const n = 50
	name := func(i int) string { return fmt.Sprintf("job-%02d", i) }
	version := func(i, v int) *leaderdv1.Job {
		schedule := "@every 1s"
		if i%5 == 4 {
			schedule = "* * * * * *"
		}
		change := []func(*leaderdv1.JobSpec){marked(fmt.Sprintf("v%d", v))}
		if i%2 == 0 {
			change = append(change, allowOverlap)
		}
		return c.httpJob(name(i), schedule, change...)
	}
	var jobs []*leaderdv1.Job
	for i := range n {
		jobs = append(jobs, version(i, 0))
	}
	c.apply(jobs...)
	from := settled()
	c.awaitWatermark(from.Add(time.Second))

	// Each job has its own moment, so that the changes hit every phase between a
	// claim and its slot.
	var g errgroup.Group
	for i := range n {
		g.Go(func() error {
			pass(t, time.Duration(i)*23*time.Millisecond)
			for round := range 3 {
				switch (i + round) % 4 {
				case 0:
					c.pause(name(i))
					pass(t, 1300*time.Millisecond)
					c.resume(name(i))
				case 1:
					c.apply(version(i, 3*round+1))
					pass(t, 400*time.Millisecond)
					c.apply(version(i, 3*round+2))
				case 2:
					c.remove(name(i))
					pass(t, 1700*time.Millisecond)
					c.apply(version(i, 3*round+3))
				case 3:
					c.pause(name(i))
					c.apply(version(i, 3*round+1)) // stays paused
					c.resume(name(i))
				}
				pass(t, 900*time.Millisecond)
			}
			if i%3 == 0 {
				c.remove(name(i))
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	c.awaitWatermark(time.Now().Add(4 * time.Second))

	h := c.check(from, time.Now().Truncate(time.Second))
	changes := 0
	for _, versions := range h.Jobs {
		changes += len(versions) - 1
	}
	t.Logf("%d changes", changes)
}

// TestHotChanges edits a job ten times, with a failover between (J01): it keeps
// its rate and starts never after its end.
func TestHotChanges(t *testing.T) {
	t.Parallel()
	c := newCluster(t, options{nodes: 2})
	c.apply(c.httpJob("hot", "@every 1s", marked("v0")))
	from := settled()
	c.awaitWatermark(from)
	for i := range 10 {
		c.apply(c.httpJob("hot", "@every 1s", marked(fmt.Sprintf("v%d", i+1))))
		if i == 5 {
			old := c.leader()
			require.Zero(t, old.terminate())
			c.awaitLeader(old.name)
			old.start()
			old.ready()
		}
	}
	c.awaitWatermark(time.Now().Add(2 * time.Second))
	c.pause("hot")
	c.awaitWatermark(time.Now().Add(2 * time.Second))
	c.resume("hot")
	c.awaitWatermark(time.Now().Add(2 * time.Second))
	c.remove("hot")
	to := time.Now()
	c.awaitWatermark(to.Add(3 * time.Second))
	starts := len(c.startsOf("hot"))
	c.check(from, to.Add(3*time.Second))
	require.Len(t, c.startsOf("hot"), starts, "starts after the delete")
}
