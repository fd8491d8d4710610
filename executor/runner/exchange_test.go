//go:build unix

package runner_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/executor/runner"
	"github.com/leaderd/leaderd/state"
)

func TestCommandsExchange(t *testing.T) {
	dir := t.TempDir()
	r := runner.New(runner.Config{ExchangeDir: dir})
	defer r.Close()
	run := func(payload, script string) (runner.Outcome, string) {
		var out bytes.Buffer
		o := r.Run(t.Context(), runner.Task{
			Job: state.JobID{Namespace: "ns", Name: "job"}, Run: state.SubmitRunID(time.Unix(1e9, 0), 1), Shards: 1, Attempt: 1, Token: 7,
			Submitted: true, Payload: []byte(payload), Command: &state.Command{Shell: script},
		}, &out)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left, "nothing is left behind")
		return o, out.String()
	}
	o, out := run("seven\n", `cat; cat "$LEADERD_PAYLOAD_FILE"; printf done >"$LEADERD_RESULT_FILE"`)
	require.Equal(t, state.StateSucceeded, o.State, o.Error)
	require.Equal(t, "seven\nseven\n", out)
	require.Equal(t, "done", string(o.Result))
	require.Empty(t, o.Unkept)

	o, out = run("", `cat; test -e "$LEADERD_PAYLOAD_FILE" && echo there`)
	require.Equal(t, state.StateSucceeded, o.State, o.Error)
	require.Equal(t, "there\n", out)
	require.Nil(t, o.Result)

	o, _ = run("", `printf half >"$LEADERD_RESULT_FILE"; exit 3`)
	require.Equal(t, state.StateFailed, o.State)
	require.Nil(t, o.Result)

	o, _ = run("", `head -c 65536 /dev/zero >"$LEADERD_RESULT_FILE"`)
	require.Len(t, o.Result, state.MaxResultBytes)
	o, _ = run("", `head -c 65537 /dev/zero >"$LEADERD_RESULT_FILE"`)
	require.Equal(t, state.StateSucceeded, o.State)
	require.Nil(t, o.Result)
	require.Contains(t, o.Unkept, "more than 65536 bytes")
	for _, odd := range []string{`mkdir "$LEADERD_RESULT_FILE"`, `mkfifo "$LEADERD_RESULT_FILE"`} {
		o, _ = run("", odd)
		require.Contains(t, o.Unkept, "no regular file", odd)
	}

	lost := runner.New(runner.Config{ExchangeDir: dir + "/missing"})
	defer lost.Close()
	o = lost.Run(t.Context(), runner.Task{Submitted: true, Command: &state.Command{Shell: "true"}}, nil)
	require.Equal(t, state.StateFailed, o.State)
	require.Contains(t, o.Error, "directory for payload and result")
}

func TestRequestsExchange(t *testing.T) {
	answer := "small"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, req.Header.Get("Content-Type")+" "+string(body)+" "+answer)
	}))
	defer server.Close()
	r := runner.New(runner.Config{})
	defer r.Close()
	task := runner.Task{Submitted: true, HTTP: &state.HTTP{URL: server.URL, Body: []byte("own")}}
	o := r.Run(t.Context(), task, nil)
	require.Equal(t, " own small", string(o.Result))
	task.Payload = []byte("given")
	var out bytes.Buffer
	o = r.Run(t.Context(), task, &out)
	require.Equal(t, state.StateSucceeded, o.State, o.Error)
	require.Equal(t, "application/octet-stream given small", string(o.Result))
	require.Equal(t, out.String(), string(o.Result))
	answer = strings.Repeat("x", state.MaxResultBytes)
	o = r.Run(t.Context(), task, nil)
	require.Equal(t, state.StateSucceeded, o.State)
	require.Nil(t, o.Result)
	require.Contains(t, o.Unkept, "more than 65536 bytes")
	task.Submitted, task.Payload = false, nil
	o = r.Run(t.Context(), task, nil)
	require.Nil(t, o.Result)
	require.Empty(t, o.Unkept)
}
