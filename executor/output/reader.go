package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Reader reads one output, finished or live. It is for one goroutine. It must
// be closed; an output that is deleted meanwhile can be read to its end, unless
// nothing of it was read yet.
type Reader struct {
	ring   *Ring
	key    Key
	file   *os.File
	writer *Writer // the live output, or nil
	follow bool
	pos    int64
	// Of a finished output:
	layout layout
	stored int64
}

// Read opens the output from its byte offset on; a negative offset counts from
// the present end. It ends where the output ends at the time of each Next, live
// or not. It answers ErrNotFound when nothing is kept.
func (r *Ring) Read(key Key, offset int64) (*Reader, error) { return r.open(key, offset, false) }

// Follow is Read that waits at the end of a live output for more, until the
// Writer is closed. A live output that is still empty can be followed.
func (r *Ring) Follow(key Key, offset int64) (*Reader, error) { return r.open(key, offset, true) }

func (r *Ring) open(key Key, offset int64, follow bool) (*Reader, error) {
	rd := &Reader{ring: r, key: key, follow: follow, pos: offset, layout: layoutOf(r.opts.MaxRunBytes)}
	r.mu.Lock()
	rd.writer = r.live[key.path()]
	r.mu.Unlock()
	if rd.writer == nil {
		if err := rd.openFinished(); err != nil {
			return nil, fmt.Errorf("read output %s: %w", key, err)
		}
	}
	if offset < 0 {
		rd.pos = max(0, rd.view().stored+offset)
	}
	return rd, nil
}

// openFile opens the file as it is named now.
func (rd *Reader) openFile() (h *os.File, cut bool, err error) {
	rd.ring.mu.Lock()
	defer rd.ring.mu.Unlock()
	f := rd.ring.files[rd.key.path()]
	if f == nil {
		return nil, false, ErrNotFound
	}
	h, err = os.Open(rd.ring.fullPath(f))
	if errors.Is(err, fs.ErrNotExist) { // somebody else deleted it
		return nil, false, ErrNotFound
	}
	return h, f.cut, err
}

func (rd *Reader) openFinished() error {
	h, cut, err := rd.openFile()
	if err != nil {
		return err
	}
	info, err := h.Stat()
	switch {
	case err != nil:
	case cut:
		rd.layout, rd.stored, err = readTrailer(h, info.Size())
	default:
		rd.layout, rd.stored = layout{head: info.Size(), circle: 1}, info.Size()
	}
	if err != nil {
		return errors.Join(err, h.Close())
	}
	rd.file = h
	return nil
}

// view is the state of the output at one instant.
type view struct {
	stored int64
	ended  bool
	// changed is closed after the next change, of a live output that is followed.
	changed <-chan struct{}
}

func (rd *Reader) view() view {
	w := rd.writer
	if w == nil {
		return view{stored: rd.stored, ended: true}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if rd.follow && !w.closed && w.changed == nil {
		w.changed = make(chan struct{})
	}
	return view{stored: w.stored, ended: w.closed, changed: w.changed}
}

// Next reads the next bytes into p, at least one, and answers the place of the
// first in the output. A place that does not follow on the bytes before means
// that those between are lost. It answers io.EOF at the end; when following a
// live output it blocks for more, and answers the cause of ctx when that ends.
func (rd *Reader) Next(ctx context.Context, p []byte) (offset int64, n int, err error) {
	if len(p) == 0 {
		return rd.pos, 0, fmt.Errorf("read output %s: %w", rd.key, io.ErrShortBuffer)
	}
	for {
		if ctx.Err() != nil {
			return rd.pos, 0, context.Cause(ctx)
		}
		v := rd.view()
		rd.pos = rd.layout.skip(rd.pos, v.stored)
		if rd.pos >= v.stored {
			if v.ended || !rd.follow {
				return rd.pos, 0, io.EOF
			}
			select {
			case <-v.changed:
			case <-ctx.Done():
			}
			continue
		}
		n, err := rd.readAt(p, v.stored)
		if err != nil {
			return rd.pos, 0, fmt.Errorf("read output %s: %w", rd.key, err)
		}
		// The writer may have come round the circle while we read.
		if rd.layout.skip(rd.pos, rd.view().stored) != rd.pos {
			continue
		}
		offset, rd.pos = rd.pos, rd.pos+int64(n)
		return offset, n, nil
	}
}

// readAt reads one piece at the reader's place.
func (rd *Reader) readAt(p []byte, stored int64) (int, error) {
	if rd.file == nil {
		h, _, err := rd.openFile()
		if err != nil {
			return 0, err
		}
		rd.file = h
	}
	end := stored
	if rd.pos < rd.layout.head { // the two halves never in one piece: a gap may open
		end = min(end, rd.layout.head)
	}
	at, n := rd.layout.place(rd.pos)
	n = min(n, end-rd.pos, int64(len(p)))
	return io.ReadFull(io.NewSectionReader(rd.file, at, n), p[:n])
}

// CopyTo writes the rest of the output to dst, with a marker line where bytes
// are lost, and answers how many bytes of the output it wrote. It blocks as Next
// does.
func (rd *Reader) CopyTo(ctx context.Context, dst io.Writer) (int64, error) {
	buf := make([]byte, 16<<10)
	var copied int64
	for {
		want := rd.pos
		offset, n, err := rd.Next(ctx, buf)
		if errors.Is(err, io.EOF) {
			return copied, nil
		}
		if err != nil {
			return copied, err
		}
		if offset > want {
			if _, err := fmt.Fprintf(dst, "\n[leaderd: %d bytes of output are not kept]\n", offset-want); err != nil {
				return copied, err
			}
		}
		m, err := dst.Write(buf[:n])
		copied += int64(m)
		if err != nil {
			return copied, err
		}
	}
}

// Close frees the file. The Reader is of no use after it.
func (rd *Reader) Close() error {
	if rd.file == nil {
		return nil
	}
	return rd.file.Close()
}
