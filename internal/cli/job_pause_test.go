package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func TestPauseBySelector(t *testing.T) {
	f, addr := startFake(t)
	for name, labels := range map[string]map[string]string{
		"namespaces/default/jobs/a": {"team": "billing", "tier": "batch"},
		"namespaces/default/jobs/b": {"team": "billing"},
		"namespaces/default/jobs/c": {"team": "search"},
		"namespaces/ops/jobs/d":     {"team": "billing"},
	} {
		f.jobs[name] = &leaderdv1.Job{Name: name, Spec: &leaderdv1.JobSpec{Labels: labels}}
	}
	require.Equal(t, "default/a paused until 2099-12-01T06:00:00Z\ndefault/b paused until 2099-12-01T06:00:00Z\n",
		succeed(t, addr, "", "job", "pause", "--selector", "team=billing", "--until", "2099-12-01T06:00:00Z", "--reason", "audit"))
	require.Contains(t, succeed(t, addr, "", "job", "get", "a"), "paused:      by ada, until 2099-12-01T06:00:00Z: audit\n")
	require.Equal(t, "default/a resumed\n", succeed(t, addr, "", "job", "resume", "-l", "team=billing,tier=batch"))
	require.Equal(t, "default/a paused\ndefault/b paused\nops/d paused\n", succeed(t, addr, "", "job", "pause", "-A", "-l", "team=billing"))

	code, _, stderr := cmdline(t, addr, "", "job", "pause", "-l", "team=nobody")
	require.Equal(t, 1, code)
	require.Equal(t, "error: no job in namespaces/default has the labels team=nobody\n", stderr)
	for line, args := range map[string][]string{
		`--selector: "team" is not key=value`:                               {"-l", "team"},
		`--selector: "team!=x" is not key=value`:                            {"-l", "team!=x"},
		`--selector: key "a b" contains " "`:                                {"-l", "a b=c"},
		`--selector: team is to be both "a" and "b"`:                        {"-l", "team=a,team=b"},
		`leaderd job pause takes jobs by name or by --selector`:             {"-l", "team=a", "x"},
		`leaderd job pause: --all-namespaces needs --selector`:              {"-A", "x"},
		`--until: "soon" is neither a duration such as 90m, 24h or 7d, nor`: {"x", "--until", "soon"},
		`--until: "-2h" is neither a duration`:                              {"x", "--until", "-2h"},
	} {
		code, stdout, stderr := cmdline(t, addr, "", append([]string{"job", "pause"}, args...)...)
		require.Equal(t, 2, code, line)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "error: "+line)
	}
	end, err := pauseEnd("90m", time.Date(2026, 11, 30, 2, 0, 0, 300, time.UTC))
	require.NoError(t, err)
	require.Equal(t, time.Date(2026, 11, 30, 3, 30, 0, 0, time.UTC), end.AsTime())
}
