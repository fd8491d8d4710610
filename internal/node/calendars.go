package node

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/store"
)

const (
	// calendarGrace is how long who changed a calendar has to bring the jobs that name
	// it up to date.
	calendarGrace = 3 * time.Second
	// calendarRetry is how long after a failure the jobs are looked at again.
	calendarRetry = 10 * time.Second
	// calendarActor is who brings them up to date where nobody else does.
	calendarActor = "leaderd"
)

// keepCalendars has jobs follow the calendars that they name where whoever changed a
// calendar did not get to that, until ctx ends. Every control node does; what one
// has done the others find done.
func keepCalendars(ctx context.Context, s *store.Store, sub *store.Subscription, log hclog.Logger) error {
	for {
		u, err := sub.Next(ctx)
		if err != nil {
			return nil //nolint:nilerr // ctx ended
		}
		changed := map[string]kv.KeyValue{}
		for _, from := range u.All {
			changed[from.Key] = *from
		}
		for _, e := range u.Events {
			if !e.Deleted {
				changed[e.KV.Key] = e.KV
			}
		}
		for wait := calendarGrace; len(changed) > 0; wait = calendarRetry {
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return nil
			case <-timer.C:
			}
			for key, from := range changed {
				e := s.DecodeCalendar(from)
				if e.Broken != nil {
					log.Error("calendar cannot be read and is left alone; put it anew or delete it", "key", key, "err", e.Broken)
					delete(changed, key)
					continue
				}
				n, err := s.FollowCalendar(ctx, e.Calendar.ID, calendarActor, "calendar "+e.Calendar.ID.Name+" was changed", time.Now)
				if err != nil {
					log.Warn("jobs do not follow a calendar yet; they are looked at again", "calendar", e.Calendar.ID, "err", err)
					continue
				}
				if n > 0 {
					log.Info("jobs follow a calendar that was changed", "calendar", e.Calendar.ID, "jobs", n)
				}
				delete(changed, key)
			}
		}
	}
}
