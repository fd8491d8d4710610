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

// following is a calendar that was changed, and when the jobs that name it are looked
// at.
type following struct {
	from kv.KeyValue
	at   time.Time
}

// keepCalendars has jobs follow the calendars that they name where whoever changed a
// calendar did not get to that, until ctx ends. Every control node does; what one
// has done the others find done. A calendar that some job cannot follow is looked at
// again and again, beside the others.
func keepCalendars(ctx context.Context, s *store.Store, sub *store.Subscription, log hclog.Logger) error {
	changed := map[string]following{}
	for {
		u, err := nextCalendars(ctx, sub, changed)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // ctx ended
		}
		now := time.Now()
		if err == nil { // else it is time to look
			if u.Reset {
				clear(changed)
			}
			for _, from := range u.All {
				changed[from.Key] = following{*from, now.Add(calendarGrace)}
			}
			for _, e := range u.Events {
				if e.Deleted {
					delete(changed, e.KV.Key)
				} else {
					changed[e.KV.Key] = following{e.KV, now.Add(calendarGrace)}
				}
			}
		}
		for key, f := range changed {
			if f.at.After(now) {
				continue
			}
			delete(changed, key)
			if !followOne(ctx, s, f.from, log) {
				changed[key] = following{f.from, time.Now().Add(calendarRetry)}
			}
		}
	}
}

// nextCalendars waits for news of calendars, or until one of changed is to be looked
// at, which is an error.
func nextCalendars(ctx context.Context, sub *store.Subscription, changed map[string]following) (store.Update, error) {
	var first time.Time
	for _, f := range changed {
		if first.IsZero() || f.at.Before(first) {
			first = f.at
		}
	}
	if first.IsZero() {
		return sub.Next(ctx)
	}
	ctx, cancel := context.WithDeadline(ctx, first)
	defer cancel()
	return sub.Next(ctx)
}

// followOne has the jobs follow one calendar; false where they are to be looked at again.
func followOne(ctx context.Context, s *store.Store, from kv.KeyValue, log hclog.Logger) bool {
	e := s.DecodeCalendar(from)
	if e.Broken != nil {
		log.Error("calendar cannot be read and is left alone; put it anew or delete it", "key", from.Key, "err", e.Broken)
		return true
	}
	n, err := s.FollowCalendar(ctx, e.Calendar.ID, calendarActor, "calendar "+e.Calendar.ID.Name+" was changed", time.Now)
	if n > 0 {
		log.Info("jobs follow a calendar that was changed", "calendar", e.Calendar.ID, "jobs", n)
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("jobs do not follow a calendar yet; they are looked at again", "calendar", e.Calendar.ID, "err", err)
	}
	return err == nil
}
