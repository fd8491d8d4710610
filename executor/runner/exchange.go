package runner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/leaderd/leaderd/state"
)

// exchange is a directory of one attempt's own, by which a command is handed its
// payload and leaves its result.
type exchange struct {
	dir string
	in  *os.File // the payload
}

const (
	payloadFile = "payload"
	resultFile  = "result"
	// exchangePrefix begins the names of the directories.
	exchangePrefix = "leaderd-run-"
)

// newExchange makes one below parent; empty: where temporary files go.
func newExchange(parent string, payload []byte) (*exchange, error) {
	dir, err := os.MkdirTemp(parent, exchangePrefix)
	if err != nil {
		return nil, fmt.Errorf("directory for payload and result: %w", err)
	}
	e := &exchange{dir: dir}
	err = os.WriteFile(e.payload(), payload, 0o600)
	if err == nil {
		e.in, err = os.Open(e.payload())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("payload: %w", err), e.close())
	}
	return e, nil
}

func (e *exchange) payload() string { return filepath.Join(e.dir, payloadFile) }
func (e *exchange) result() string  { return filepath.Join(e.dir, resultFile) }

// variables tell the command of it.
func (e *exchange) variables() []string {
	return []string{"LEADERD_PAYLOAD_FILE=" + e.payload(), "LEADERD_RESULT_FILE=" + e.result()}
}

// collect takes the result of a command that succeeded.
func (e *exchange) collect(o *Outcome) {
	if o.State != state.StateSucceeded {
		return
	}
	// What the command has made of it may be a pipe, on which to open would wait.
	f, err := os.OpenFile(e.result(), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var result []byte
	if err == nil {
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
			err = errors.New("it is no regular file")
		}
		if err == nil {
			result, err = io.ReadAll(io.LimitReader(f, state.MaxResultBytes+1))
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		o.Unkept = "the result cannot be read: " + err.Error()
		return
	}
	o.keep(result)
}

// keep makes what a run left its result, where it is not too much.
func (o *Outcome) keep(result []byte) {
	if len(result) > state.MaxResultBytes {
		o.Unkept = fmt.Sprintf("the result has more than %d bytes and is not kept", state.MaxResultBytes)
		return
	}
	o.Result = result
}

// close removes it.
func (e *exchange) close() error {
	var err error
	if e.in != nil {
		err = e.in.Close()
	}
	return errors.Join(err, os.RemoveAll(e.dir))
}

// tee keeps the first bytes that go by, one more than a result may have.
type tee struct {
	to   io.Writer // nil: nothing
	kept []byte
}

// Write implements io.Writer.
func (t *tee) Write(p []byte) (int, error) {
	if room := state.MaxResultBytes + 1 - len(t.kept); room > 0 {
		t.kept = append(t.kept, p[:min(len(p), room)]...)
	}
	if t.to == nil {
		return len(p), nil
	}
	return t.to.Write(p)
}
