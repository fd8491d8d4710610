//go:build unix

package runner

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// pumpBuffers are held only while there is something to copy, so that a quiet
// command costs no buffer.
var pumpBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// pump copies what a command prints from its pipe to a writer, on a goroutine of
// its own. It always reads on, so that the command never blocks on a writer that
// failed.
type pump struct {
	pipe *os.File
	out  io.Writer
	// done is closed when the pump has ended: at the end of the output, at finish,
	// or by a crash of the writer.
	done    chan struct{}
	crashed chan *crash // holds the writer's crash; buffered
	last    atomic.Bool
	err     error // of the writer; valid after done
}

// startPump starts copying. finish must be called.
func startPump(pipe *os.File, out io.Writer) *pump {
	p := &pump{pipe: pipe, out: out, done: make(chan struct{}), crashed: make(chan *crash, 1)}
	go func() {
		defer close(p.done)
		protect(p.copy, func(c *crash) { p.crashed <- c })
	}()
	return p
}

// finish ends the pump, waits for it and frees the pipe. What is in the pipe by
// now is still copied.
func (p *pump) finish() error {
	p.last.Store(true)
	// Wakes the pump where it waits for more. It cannot fail on a pipe that is in
	// the poller and not closed.
	_ = p.pipe.SetReadDeadline(time.Unix(1, 0))
	<-p.done
	if err := p.pipe.Close(); p.err == nil {
		return err
	}
	return p.err
}

func (p *pump) copy() {
	raw, err := p.pipe.SyscallConn()
	if err != nil {
		p.err = err
		return
	}
	var buf *[32 << 10]byte
	defer func() {
		if buf != nil {
			pumpBuffers.Put(buf)
		}
	}()
	for {
		var n int
		var readErr error
		read := func(fd uintptr) bool {
			if buf == nil {
				buf = pumpBuffers.Get().(*[32 << 10]byte)
			}
			n, readErr = readRetry(int(fd), buf[:])
			if errors.Is(readErr, syscall.EAGAIN) { // no buffer while we wait
				pumpBuffers.Put(buf)
				buf = nil
				return false
			}
			return true
		}
		err := raw.Read(read)
		if err != nil && p.last.Load() {
			// The deadline of finish. Copy what is there, at most what a pipe holds.
			p.drain(raw)
			return
		}
		if err == nil {
			err = readErr
		}
		if err == nil && n > 0 {
			p.write(buf[:n])
		}
		if err != nil && p.err == nil {
			p.err = err
		}
		if err != nil || n == 0 {
			return
		}
	}
}

// drain copies what is in the pipe, without waiting for more.
func (p *pump) drain(raw syscall.RawConn) {
	const mostInPipe = 1 << 20 // the default of fs.pipe-max-size
	buf := pumpBuffers.Get().(*[32 << 10]byte)
	defer pumpBuffers.Put(buf)
	for range mostInPipe / len(buf) {
		var n int
		var readErr error
		err := raw.Control(func(fd uintptr) { n, readErr = readRetry(int(fd), buf[:]) })
		if err != nil || readErr != nil || n == 0 {
			return
		}
		p.write(buf[:n])
	}
}

// write passes b on until the writer has failed once.
func (p *pump) write(b []byte) {
	if p.err != nil {
		return
	}
	n, err := p.out.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	p.err = err
}

func readRetry(fd int, b []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, b)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
