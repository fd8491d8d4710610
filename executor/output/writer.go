package output

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/leaderd/leaderd/state"
)

// Writer takes the output of one attempt. It is safe for concurrent use; one
// Write is never torn by another.
type Writer struct {
	ring *Ring
	path string

	mu     sync.Mutex
	handle *os.File // nil before the first byte and after Close
	file   *file    // nil before the first byte
	tail   tail
	total  int64 // bytes written to the Writer
	stored int64 // bytes written to the file; less once err is set
	err    error // the first trouble; the file takes no more after it
	closed bool
	// changed is closed at the next change; nil while nobody follows.
	changed chan struct{}
}

// Write stores p, and never fails before Close: what the disk refuses is
// counted and dropped. It blocks no longer than the file system does.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, fmt.Errorf("write output %s: %w", w.path, ErrClosed)
	}
	if len(p) == 0 {
		return 0, nil
	}
	w.total += int64(len(p))
	w.tail.add(p)
	if w.err == nil {
		if err := w.store(p); err != nil {
			w.err = fmt.Errorf("write output %s: %w", w.path, err)
		}
	}
	w.notify()
	return len(p), nil
}

// store writes p to the file. The caller holds the mutex.
func (w *Writer) store(p []byte) error {
	if w.file == nil {
		h, f, err := w.ring.openFile(w.path)
		if errors.Is(err, syscall.ENOSPC) && w.ring.shed(1<<20) {
			h, f, err = w.ring.openFile(w.path)
		}
		if err != nil {
			return err
		}
		w.handle, w.file = h, f
	}
	l := layoutOf(w.ring.opts.MaxRunBytes)
	for len(p) > 0 {
		at, n := l.place(w.stored)
		n = min(n, int64(len(p)))
		if at == w.stored { // not yet around the circle: the file grows
			if err := w.ring.grow(w.file, at+n); err != nil {
				return err
			}
		} else if !w.file.cut {
			if err := w.beginCut(l); err != nil {
				return err
			}
		}
		done, err := w.writeAt(p[:n], at)
		w.stored += int64(done)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	if w.file.cut {
		_, err := w.writeAt(l.trailer(w.stored), l.limit())
		return err
	}
	return nil
}

// beginCut makes the full file a cut one, before the first byte is overwritten.
func (w *Writer) beginCut(l layout) error {
	if err := w.ring.grow(w.file, l.limit()+trailerSize); err != nil {
		return err
	}
	if _, err := w.writeAt(l.trailer(w.stored), l.limit()); err != nil {
		return err
	}
	return w.ring.markCut(w.file)
}

// writeAt writes, and tries once more after making room on a full disk.
func (w *Writer) writeAt(p []byte, at int64) (int, error) {
	n, err := w.handle.WriteAt(p, at)
	if errors.Is(err, syscall.ENOSPC) && w.ring.shed(max(1<<20, int64(len(p)))) {
		var more int
		more, err = w.handle.WriteAt(p[n:], at+int64(n))
		n += more
	}
	return n, err
}

// notify wakes those that follow. The caller holds the mutex.
func (w *Writer) notify() {
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}

// Tail is a copy of the last bytes written, at most state.MaxTailBytes.
func (w *Writer) Tail() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tail.bytes()
}

// Bytes is how many bytes were written, kept or not.
func (w *Writer) Bytes() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// Truncated tells whether the file lacks bytes that were written: of the middle,
// because they were more than Options.MaxRunBytes, or of the end, because of
// the trouble that Close reports.
func (w *Writer) Truncated() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stored < w.total || w.stored > w.ring.opts.MaxRunBytes
}

// Close ends the output and lets those that follow it finish. It answers the
// first trouble with the disk, after which bytes were dropped. Calls after the
// first answer the same.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return w.err
	}
	w.closed = true
	if w.handle != nil {
		if err := w.handle.Close(); err != nil && w.err == nil {
			w.err = fmt.Errorf("close output %s: %w", w.path, err)
		}
		w.handle = nil
	}
	w.ring.end(w.path, w.file)
	w.notify()
	return w.err
}

// tail is the end of a stream of bytes. It takes no more memory than it needs.
type tail struct {
	buf   []byte
	start int // of the oldest byte, once buf is full
}

func (t *tail) add(p []byte) {
	const most = state.MaxTailBytes
	if len(p) >= most {
		t.buf, t.start = append(t.buf[:0], p[len(p)-most:]...), 0
		return
	}
	if room := min(most-len(t.buf), len(p)); room > 0 {
		t.buf = append(t.buf, p[:room]...)
		p = p[room:]
	}
	for len(p) > 0 {
		n := copy(t.buf[t.start:], p)
		t.start = (t.start + n) % most
		p = p[n:]
	}
}

func (t *tail) bytes() []byte {
	if len(t.buf) == 0 {
		return nil
	}
	return append(append(make([]byte, 0, len(t.buf)), t.buf[t.start:]...), t.buf[:t.start]...)
}
