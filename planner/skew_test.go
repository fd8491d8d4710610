package planner

import (
	"bytes"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

func TestSkewIsThatOfTheFastestPulse(t *testing.T) {
	now := time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
	var s skew
	for i, delay := range []int{3, 2, 40, 1, 5} {
		ahead, ok := s.add(now.Add(-3*time.Second-time.Duration(delay)*time.Millisecond), now)
		require.Equal(t, i == 4, ok)
		if ok {
			require.Equal(t, -3001*time.Millisecond, ahead)
		}
	}
	for range 5 { // the clock was set
		s.add(now, now)
	}
	ahead, _ := s.add(now, now)
	require.Zero(t, ahead)
}

func TestSkewIsTold(t *testing.T) {
	var log bytes.Buffer
	p := &Planner{
		cfg:     Config{Logger: hclog.New(&hclog.LoggerOptions{Output: &log})}.WithDefaults(),
		metrics: newMetrics(nil),
	}
	s := newSession(state.Owner{Node: "a", Revision: 1})
	tm := &term{Planner: p, sessions: map[string]*session{"a": s}}
	now := time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
	tm.setSkew(s, -time.Second, now)
	require.Empty(t, log.String())
	tm.setSkew(s, -2*time.Second, now)
	require.Contains(t, log.String(), "node=a ahead=-2s")
	require.Equal(t, []state.ClockSkew{{Node: "a", Ahead: -2 * time.Second}}, tm.wrongClocks())
	log.Reset()
	tm.setSkew(s, -3*time.Second, now.Add(30*time.Second))
	require.Empty(t, log.String(), "once a minute")
	tm.setSkew(s, -3*time.Second, now.Add(time.Minute))
	require.Contains(t, log.String(), "ahead=-3s")
	log.Reset()
	tm.compareClocks(now.Add(time.Second), now)
	require.Empty(t, log.String())
	tm.compareClocks(now.Add(5*time.Second), now)
	require.Contains(t, log.String(), "ahead=5s")
}
