package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

const (
	socketEnv = "LEADERD_SOCKET"
	// maxCheckpointFile is what is read of a checkpoint at most: one byte more than
	// leaderd takes, which then says so.
	maxCheckpointFile = 256<<10 + 1
)

func checkpointCommand(d Deps) *cobra.Command {
	return group("checkpoint", "Inside a run: get the last checkpoint, or save one", checkpointGet(d), checkpointPut(d))
}

const insideRun = `

It works inside a run of a command, where ` + socketEnv + ` names the run's socket. Exit
codes: 1 it could not be done, 2 bad arguments or no run, 3 FENCED: the attempt is no
longer the run's, 4 CONFLICT: another run has replaced the checkpoint.`

func checkpointGet(d Deps) *cobra.Command {
	return &cobra.Command{
		Use:   "get [FILE]",
		Short: "Write the last checkpoint to the file, or to the output",
		Long: `Write the last checkpoint that was accepted to the file, or to the output; nothing
where there is none.` + insideRun,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := askRun(cmd.Context(), d, http.MethodGet, "checkpoint", nil)
			if err != nil {
				return err
			}
			if len(args) == 0 || args[0] == "-" {
				_, err = d.Stdout.Write(data)
				return err
			}
			return os.WriteFile(args[0], data, 0o600)
		},
	}
}

func checkpointPut(d Deps) *cobra.Command {
	return &cobra.Command{
		Use:   "put [FILE]",
		Short: "Save the file, or the input, as the run's checkpoint",
		Long: `Save the file, or the input, as the run's checkpoint: at most 256 KiB. It ends well
once that is stored, and waits while the store is away.` + insideRun,
		Example: `  echo "$id" | leaderd checkpoint put`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			from := d.Stdin
			if len(args) == 1 && args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return usageError{err}
				}
				defer func() { _ = f.Close() }() // it was only read
				from = f
			}
			data, err := io.ReadAll(io.LimitReader(from, maxCheckpointFile))
			if err != nil {
				return fmt.Errorf("read the checkpoint: %w", err)
			}
			_, err = askRun(cmd.Context(), d, http.MethodPut, "checkpoint", data)
			return err
		},
	}
}

func progressCommand(d Deps) *cobra.Command {
	var message string
	c := &cobra.Command{
		Use:     "progress DONE[/TOTAL]",
		Short:   "Inside a run: say how far it has come",
		Long:    "Say how far the run has come: run get and run list --wide tell it." + insideRun,
		Example: `  leaderd progress 37/100 --message "loading orders"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			done, total, err := readProgress(args[0])
			if err != nil {
				return err
			}
			body, err := json.Marshal(map[string]any{"done": done, "total": total, "message": message})
			if err != nil {
				return err
			}
			_, err = askRun(cmd.Context(), d, http.MethodPut, "progress", body)
			return err
		},
	}
	c.Flags().StringVarP(&message, "message", "m", "", "what it is doing; at most 256 bytes")
	return c
}

func readProgress(text string) (done, total int64, err error) {
	before, after, both := strings.Cut(text, "/")
	done, err = strconv.ParseInt(before, 10, 64)
	if err == nil && both {
		total, err = strconv.ParseInt(after, 10, 64)
	}
	if err != nil || done < 0 || total < 0 || both && total == 0 {
		return 0, 0, usagef("%q is no progress, such as 37/100, or 37 where the total is not known", clip(text))
	}
	return done, total, nil
}

func permanentCommand(d Deps) *cobra.Command {
	return &cobra.Command{
		Use:   "permanent",
		Short: "Inside a run: say that to try again is of no use",
		Long:  "Say that to try again is of no use, should the attempt fail: its run has failed for good." + insideRun,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := askRun(cmd.Context(), d, http.MethodPost, "permanent", nil)
			return err
		},
	}
}

func snoozeCommand(d Deps) *cobra.Command {
	c := waitCommand(d, "snooze", "Inside a run: have it called again later")
	c.Long = `Have the run called again after that long, once the attempt has ended, well or not. It
does not count as one that failed.` + insideRun
	return c
}

func retryAfterCommand(d Deps) *cobra.Command {
	c := waitCommand(d, "retry-after", "Inside a run: choose the wait before the next try")
	c.Long = `Choose how long the next try waits, should the attempt fail and the job's policy have it
tried again.` + insideRun
	return c
}

func waitCommand(d Deps, name, short string) *cobra.Command {
	return &cobra.Command{
		Use:     name + " DURATION",
		Short:   short,
		Example: "  leaderd " + name + " 10m",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := askRun(cmd.Context(), d, http.MethodPost, name+"?for="+url.QueryEscape(args[0]), nil)
			return err
		},
	}
}

// askRun makes a request of the run that the command is part of.
func askRun(ctx context.Context, d Deps, method, what string, body []byte) ([]byte, error) {
	path := d.getenv(socketEnv)
	if path == "" {
		return nil, usagef("%s is not set: this works only inside a run of a command that leaderd started", socketEnv)
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
		DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(ctx, method, "http://run/"+what, bytes.NewReader(body))
	what, _, _ = strings.Cut(what, "?")
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			return nil, usagef("the run is over, or its executor is gone: %s=%s: %w", socketEnv, path, op.Err)
		}
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxCheckpointFile))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if resp.StatusCode < http.StatusMultipleChoices {
		return data, nil
	}
	return nil, refusedByRun(what, resp.StatusCode, data)
}

// refusedByRun is a refusal, with the exit status that its reason has.
func refusedByRun(what string, status int, body []byte) error {
	var why struct{ Reason, Error string }
	if err := json.Unmarshal(body, &why); err != nil || why.Reason == "" {
		return fmt.Errorf("%s: status %d: %s", what, status, clip(string(body)))
	}
	err := fmt.Errorf("%s: %s: %s", what, why.Reason, why.Error)
	switch why.Reason {
	case "FENCED":
		return codedError{err, exitFenced}
	case "CONFLICT":
		return codedError{err, exitConflict}
	case "INVALID":
		return usageError{err}
	}
	return err
}
