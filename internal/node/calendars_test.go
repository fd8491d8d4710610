package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/memkv"
	"github.com/leaderd/leaderd/state/store"
)

// TestCalendarsAreKeptApart: a calendar that some job cannot follow keeps no other
// calendar from being followed that is changed later.
func TestCalendarsAreKeptApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		db := memkv.New()
		defer db.Close()
		s, err := store.New(db, store.Config{})
		require.NoError(t, err)
		defer s.Close()
		date := func(day string) *leaderdv1.CalendarSpec {
			return &leaderdv1.CalendarSpec{Entries: []*leaderdv1.CalendarEntry{{When: &leaderdv1.CalendarEntry_Date{Date: day}}}}
		}
		write := func(name, value string) {
			_, err := db.Txn(ctx, kv.Txn{Then: []kv.Op{kv.Put(s.Prefix()+"calendars/default/"+name, []byte(value), 0)}})
			require.NoError(t, err)
		}
		stored := func(name, day string) string { // as somebody writes it who then dies
			_, err := s.PutCalendar(ctx, store.PutCalendar{
				ID: state.CalendarID{Namespace: "default", Name: name}, Spec: date(day), AllowMissing: true, Now: time.Now,
			})
			require.NoError(t, err)
			res, err := db.Range(ctx, s.Prefix()+"calendars/default/"+name, "", kv.RangeOptions{})
			require.NoError(t, err)
			return string(res.KVs[0].Value)
		}
		later := stored("good", "2026-12-31")
		stored("good", "2026-12-24")
		stored("shared", "2026-12-24")
		stored("spoilt", "2026-12-24")
		id := state.JobID{Namespace: "default", Name: "job"}
		for name, calendars := range map[string][]string{"job": {"good"}, "bad": {"shared", "spoilt"}} {
			_, err := s.PutJob(ctx, store.PutJob{
				ID: state.JobID{Namespace: "default", Name: name}, AllowMissing: true, Now: time.Now(), Spec: &leaderdv1.JobSpec{
					Schedules: []string{"@daily"}, ExcludedCalendars: calendars, Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}},
				},
			})
			require.NoError(t, err)
		}
		write("spoilt", "\xff") // so "bad" cannot follow "shared"

		cache := s.CalendarsCache()
		sub := cache.Subscribe()
		defer sub.Close()
		ended := make(chan error, 2)
		go func() { ended <- cache.Run(ctx) }()
		go func() { ended <- keepCalendars(ctx, s, sub, hclog.NewNullLogger()) }()
		time.Sleep(time.Minute) // in which "shared" is tried again and again
		write("good", later)
		time.Sleep(2 * calendarGrace)
		job, err := s.GetJob(ctx, id)
		require.NoError(t, err)
		require.Equal(t, "2026-12-31", job.Message.GetCalendars()[0].GetSpec().GetEntries()[0].GetDate())
		cancel()
		<-ended
		<-ended
	})
}
