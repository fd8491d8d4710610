// Batch works through the numbers of its shard, as a program of a user's may: it goes on
// behind its last checkpoint, saves one every 100 ms and when it is asked to stop, and
// writes each number down in the file BATCH_OUT when it has done it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	saveEvery = 100 * time.Millisecond
	itemTakes = 50 * time.Millisecond
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "batch:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	from, err := strconv.Atoi(os.Getenv("LEADERD_SHARD_FROM"))
	if err != nil {
		return err
	}
	to, err := strconv.Atoi(os.Getenv("LEADERD_SHARD_TO"))
	if err != nil {
		return err
	}
	out, err := os.OpenFile(os.Getenv("BATCH_OUT"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer out.Close() // what was written was checked
	s := newSaver()
	done, err := s.last(from - 1)
	if err != nil {
		return err
	}
	saved := time.Now()
	for item := done + 1; item <= to; item++ {
		select {
		case <-ctx.Done():
			return errors.Join(errors.New("asked to stop"), s.save(item-1))
		case <-time.After(itemTakes):
		}
		if _, err := fmt.Fprintln(out, os.Getenv("LEADERD_SHARD"), os.Getenv("LEADERD_ATTEMPT"), item); err != nil {
			return err
		}
		if time.Since(saved) < saveEvery {
			continue
		}
		saved = time.Now()
		if err := s.save(item); errors.Is(err, errFenced) {
			return err
		} else if err != nil {
			fmt.Fprintln(os.Stderr, "batch: go on without a checkpoint:", err)
		}
	}
	return nil
}

// saver keeps the number that is done through the run's private socket.
type saver struct{ client *http.Client }

func newSaver() *saver {
	socket := os.Getenv("LEADERD_SOCKET")
	return &saver{&http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}},
	}}
}

// last is the number that was saved last, otherwise where there is none.
func (s *saver) last(otherwise int) (int, error) {
	text, err := s.call(http.MethodGet, "")
	if err != nil || text == "" {
		return otherwise, err
	}
	return strconv.Atoi(text)
}

func (s *saver) save(done int) error {
	_, err := s.call(http.MethodPut, strconv.Itoa(done))
	return err
}

var errFenced = errors.New("the attempt is no longer the run's")

func (s *saver) call(method, body string) (answer string, err error) {
	req, err := http.NewRequestWithContext(context.Background(), method, "http://run/checkpoint", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	content, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return "", err
	case resp.StatusCode == http.StatusGone:
		return "", errFenced
	case resp.StatusCode >= http.StatusMultipleChoices:
		return "", fmt.Errorf("%s checkpoint: %s %s", method, resp.Status, content)
	}
	return string(content), nil
}
