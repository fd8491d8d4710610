package state_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// checks know the zone "Mars" and refuse the schedule "bad".
var checks = state.ScheduleChecks{
	Zone: func(zone string) error {
		if zone != "UTC" && zone != "Mars" {
			return fmt.Errorf("no such zone %q", zone)
		}
		return nil
	},
	Schedule: func(text, _ string) error {
		if text == "bad" {
			return errors.New("it is bad")
		}
		return nil
	},
}

func many(n int, item string) []string {
	items := make([]string, n)
	for i := range items {
		items[i] = item
	}
	return items
}

func manyKeys(n int) map[string]string {
	m := make(map[string]string, n)
	for i := range n {
		m[fmt.Sprintf("k%d", i)] = "v"
	}
	return m
}

func command(c state.Command) state.JobSpec { return state.JobSpec{Command: &c} }

func request(h state.HTTP) state.JobSpec {
	if h.URL == "" {
		h.URL = "https://example.com/x"
	}
	return state.JobSpec{HTTP: &h}
}

func noop(s state.JobSpec) state.JobSpec {
	s.NoOp = true
	return s
}

func TestValidateNamesEachBadField(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, tc := range []struct {
		field, says string
		spec        state.JobSpec
	}{
		{"spec.description", "at most 1024", noop(state.JobSpec{Description: long(1025)})},
		{"spec.labels", "33 entries", noop(state.JobSpec{Labels: manyKeys(33)})},
		{"spec.labels", "empty key", noop(state.JobSpec{Labels: map[string]string{"": "x"}})},
		{"spec.labels", `begins with "-"`, noop(state.JobSpec{Labels: map[string]string{"-a": "x"}})},
		{"spec.labels", `contains " "`, noop(state.JobSpec{Labels: map[string]string{"a b": "x"}})},
		{"spec.labels", "129 bytes", noop(state.JobSpec{Labels: map[string]string{long(129): "x"}})},
		{"spec.labels", "129 bytes", noop(state.JobSpec{Labels: map[string]string{"a": long(129)}})},
		{"spec.nodeSelector", "control character", noop(state.JobSpec{Selector: map[string]string{"a": "\n"}})},
		{"spec.schedules", "17 entries", noop(state.JobSpec{Schedules: many(17, "* * * * *")})},
		{"spec.schedules[1]", "it is bad", noop(state.JobSpec{Schedules: []string{"ok", "bad"}})},
		{"spec.schedules[0]", "513 bytes", noop(state.JobSpec{Schedules: []string{long(513)}})},
		{"spec.concurrencyKey", "control character", noop(state.JobSpec{MaxConcurrent: 1, ConcurrencyKey: "a\n"})},
		{"spec.concurrencyKey", "control character", noop(state.JobSpec{MaxConcurrent: 1, ConcurrencyKey: "a\tb"})},
		{"spec.timeZone", `no such zone "Venus"`, noop(state.JobSpec{TimeZone: "Venus", Schedules: []string{"ok"}})},
		{"spec.startDeadline", "outside 1s–8784h", noop(state.JobSpec{StartDeadline: time.Millisecond})},
		{"spec.startDeadline", "outside 1s–8784h", noop(state.JobSpec{StartDeadline: 8784*time.Hour + 1})},
		{"spec.checkpoint.keep", "outside 1–20", noop(state.JobSpec{Checkpoint: &state.CheckpointPolicy{Keep: 21}})},
		{"spec.checkpoint.scope", "one run is live", noop(state.JobSpec{
			Overlap: state.OverlapAllow, Checkpoint: &state.CheckpointPolicy{Scope: state.CheckpointOfJob},
		})},
		{"spec.checkpoint.body", "http target", noop(state.JobSpec{Checkpoint: &state.CheckpointPolicy{Body: true}})},
		{"spec.drain", "at_most_once", noop(state.JobSpec{Drain: state.DrainHandover, Guarantee: state.AtMostOnce})},
		{"spec.timeout", "outside", noop(state.JobSpec{Timeout: -time.Second})},
		{"spec.timeout", "168h", noop(state.JobSpec{Timeout: 169 * time.Hour})},
		{"spec.killGrace", "10m", noop(state.JobSpec{KillGrace: 11 * time.Minute})},
		{"spec.limits[0].perKey", "must be allow or skip", noop(state.JobSpec{
			Overlap: state.OverlapQueue, Limits: []state.Limit{{Name: "a", Max: 1, PerKey: true}},
		})},
		{"spec", "0 targets", state.JobSpec{}},
		{"spec", "2 targets", noop(command(state.Command{Shell: "true"}))},
		{"spec.command", "runs nothing", command(state.Command{})},
		{"spec.command", "both argv and shell", command(state.Command{Shell: "x", Argv: []string{"x"}})},
		{"spec.command.argv", "257 entries", command(state.Command{Argv: many(257, "x")})},
		{"spec.command.argv", "together", command(state.Command{Argv: many(2, long(40_000))})},
		{"spec.command.argv[0]", "name the program", command(state.Command{Argv: []string{""}})},
		{"spec.command.argv[1]", "NUL", command(state.Command{Argv: []string{"x", "a\x00b"}})},
		{"spec.command.shell", "65537 bytes", command(state.Command{Shell: long(65537)})},
		{"spec.command.shell", "NUL", command(state.Command{Shell: "\x00"})},
		{"spec.command.env", "129 entries", command(state.Command{Shell: "x", Env: manyKeys(129)})},
		{"spec.command.env", "without a name", command(state.Command{Shell: "x", Env: map[string]string{"": "x"}})},
		{"spec.command.env", `"A=B"`, command(state.Command{Shell: "x", Env: map[string]string{"A=B": "x"}})},
		{"spec.command.env", `"1A"`, command(state.Command{Shell: "x", Env: map[string]string{"1A": "x"}})},
		{"spec.command.env", "leaderd's", command(state.Command{Shell: "x", Env: map[string]string{"LEADERD_TOKEN": "1"}})},
		{"spec.command.env", "NUL", command(state.Command{Shell: "x", Env: map[string]string{"A": "\x00"}})},
		{"spec.command.env", "together", command(state.Command{Shell: "x", Env: map[string]string{"A": long(70_000)}})},
		{"spec.command.dir", "absolute", command(state.Command{Shell: "x", Dir: "tmp"})},
		{"spec.command.dir", "4097 bytes", command(state.Command{Shell: "x", Dir: "/" + long(4096)})},
		{"spec.http.method", `"GE T"`, request(state.HTTP{Method: "GE T"})},
		{"spec.http.method", "CONNECT", request(state.HTTP{Method: "CONNECT"})},
		{"spec.http.url", "is empty", state.JobSpec{HTTP: &state.HTTP{}}},
		{"spec.http.url", `scheme "ftp"`, request(state.HTTP{URL: "ftp://example.com/"})},
		{"spec.http.url", `scheme ""`, request(state.HTTP{URL: "/hook"})},
		{"spec.http.url", "no host", request(state.HTTP{URL: "http:///hook"})},
		{"spec.http.url", "cannot be read", request(state.HTTP{URL: "http://a b/"})},
		{"spec.http.url", "1–65535", request(state.HTTP{URL: "http://a:70000/"})},
		{"spec.http.url", "4097 bytes", request(state.HTTP{URL: "http://a/" + long(4088)})},
		{"spec.http.headers", "65 entries", request(state.HTTP{Header: manyKeys(65)})},
		{"spec.http.headers", "without a name", request(state.HTTP{Header: map[string]string{"": "x"}})},
		{"spec.http.headers", `"a:b"`, request(state.HTTP{Header: map[string]string{"a:b": "x"}})},
		{"spec.http.headers", "leaderd's", request(state.HTTP{Header: map[string]string{"leaderd-token": "x"}})},
		{"spec.http.headers", "the request itself", request(state.HTTP{Header: map[string]string{"Content-Length": "1"}})},
		{"spec.http.headers", "same header", request(state.HTTP{Header: map[string]string{"X-A": "x", "x-a": "y"}})},
		{"spec.http.headers", "which no header may", request(state.HTTP{Header: map[string]string{"X-A": "a\r\nb"}})},
		{"spec.http.body", "at most 262144", request(state.HTTP{Body: make([]byte, 256<<10+1)})},
		{"spec.http.expectedCodes[1]", "200–599", request(state.HTTP{ExpectedCodes: []int{200, 99}})},
		{"spec.http.expectedCodes", "65 entries", request(state.HTTP{ExpectedCodes: make([]int, 65)})},
	} {
		t.Run(tc.field+" "+tc.says, func(t *testing.T) {
			err := tc.spec.Validate(checks)
			var v state.Violations
			require.ErrorAs(t, err, &v)
			found := false
			for _, f := range v {
				found = found || f.Field == tc.field && strings.Contains(f.Description, tc.says)
			}
			require.True(t, found, "%s", err)
			require.Contains(t, err.Error(), tc.field+": ")
		})
	}
}

func TestValidateAnswersAllViolationsAtOnce(t *testing.T) {
	spec := state.JobSpec{
		TimeZone: "Venus", Schedules: []string{"bad"}, Timeout: -1,
		Command: &state.Command{Argv: []string{"x"}, Shell: "y", Dir: "z"},
	}
	var v state.Violations
	require.ErrorAs(t, spec.Validate(checks), &v)
	var fields []string
	for _, f := range v {
		fields = append(fields, f.Field)
	}
	require.Equal(t, []string{"spec.timeZone", "spec.timeout", "spec.command", "spec.command.dir"}, fields,
		"schedules are not checked in a zone that does not exist")
}

func TestValidateTakesEverythingUpToTheLimits(t *testing.T) {
	for _, spec := range []state.JobSpec{
		noop(state.JobSpec{}),
		noop(state.JobSpec{
			Description: strings.Repeat("x", 1024), Labels: manyKeys(32), Selector: map[string]string{"example.com/zone": ""},
			Schedules: many(16, strings.Repeat("x", 512)), TimeZone: "Mars", StartDeadline: time.Second,
			Timeout: 168 * time.Hour, KillGrace: 10 * time.Minute,
		}),
		command(state.Command{Argv: many(256, "x"), Env: manyKeys(128), Dir: "/"}),
		command(state.Command{Argv: []string{"x", ""}}),
		command(state.Command{Shell: strings.Repeat("x", 64<<10)}),
		request(state.HTTP{Method: "PURGE", Header: manyKeys(64), Body: make([]byte, 256<<10), ExpectedCodes: []int{200, 599}}),
		request(state.HTTP{URL: "http://user:pw@[::1]:8080/a?b=c", Header: map[string]string{"X-A": "a\tb"}}),
	} {
		require.NoError(t, spec.Validate(checks))
	}
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "ab", "a-b", "A.b_c-9", "9", strings.Repeat("x", 128)} {
		require.Empty(t, state.CheckName(name), name)
	}
	for name, says := range map[string]string{
		"": "is empty", "a/b": `contains "/"`, "-a": `begins with "-"`, ".": `begins with "."`, "a b": `contains " "`,
		"é": `begins with "é"`, "a\x00": "contains", "~": "begins with", strings.Repeat("x", 129): "129 bytes",
	} {
		require.Contains(t, state.CheckName(name), says)
	}
}

func TestCheckReason(t *testing.T) {
	require.Empty(t, state.CheckReason("because\n\tof"))
	require.NotEmpty(t, state.CheckReason("\x1b[31m"))
	require.NotEmpty(t, state.CheckReason(strings.Repeat("x", 513)))
}
