package output

import (
	"cmp"
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Errors of the ring.
var (
	// ErrNotFound: no output is kept for the key. The attempt printed nothing,
	// ran elsewhere, or its file was deleted to make room.
	ErrNotFound = errors.New("output not found")
	// ErrLive: the key's output is being written already.
	ErrLive = errors.New("output is being written")
	// ErrFull: the files of live attempts alone fill the ring.
	ErrFull = errors.New("output ring is full of live attempts")
	// ErrClosed: the Writer was closed.
	ErrClosed = errors.New("output is closed")
)

// Options are the ring's limits.
type Options struct {
	// MaxTotalBytes bounds the disk space of all files; each counts in whole
	// blocks of 4 KiB. Zero means 1 GiB.
	MaxTotalBytes int64
	// MaxRunBytes bounds the file of one attempt. Zero means 16 MiB; the least
	// is 8 KiB.
	MaxRunBytes int64
	// MaxFiles bounds their number, and with it the ring's memory (some 300
	// bytes a file). Zero means 65,536.
	MaxFiles int
}

const (
	defaultTotalBytes = 1 << 30
	defaultRunBytes   = 16 << 20
	defaultFiles      = 1 << 16
	minRunBytes       = 8 << 10
	block             = 4 << 10

	suffixWhole = ".out"
	suffixCut   = ".cut"
)

func (o Options) withDefaults() Options {
	o.MaxTotalBytes = cmp.Or(o.MaxTotalBytes, defaultTotalBytes)
	o.MaxRunBytes = cmp.Or(o.MaxRunBytes, defaultRunBytes)
	o.MaxFiles = cmp.Or(o.MaxFiles, defaultFiles)
	return o
}

// Validate answers every violation, named by field.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	if o.MaxRunBytes < minRunBytes {
		errs = append(errs, fmt.Errorf("MaxRunBytes: %d is less than %d", o.MaxRunBytes, minRunBytes))
	}
	if o.MaxTotalBytes < o.MaxRunBytes+block {
		errs = append(errs, fmt.Errorf("MaxTotalBytes: %d has no room for one file of MaxRunBytes (%d)", o.MaxTotalBytes, o.MaxRunBytes))
	}
	if o.MaxFiles < 1 {
		errs = append(errs, fmt.Errorf("MaxFiles: %d is less than 1", o.MaxFiles))
	}
	return errors.Join(errs...)
}

// Ring is a directory of outputs. It is safe for concurrent use.
type Ring struct {
	dir  string
	opts Options

	mu    sync.Mutex
	live  map[string]*Writer // by Key.path, from Create to Close
	files map[string]*file   // by Key.path
	ended list.List          // of *file, those not live; the oldest in front
	total int64              // disk space of files
}

// file is one file on disk. The ring's mutex guards it.
type file struct {
	path    string // Key.path
	cut     bool   // which suffix it has
	charged int64  // its part of the ring's total
	place   *list.Element
}

// Open finds the ring in dir, or makes it, and deletes what is over the limits.
// It reads the whole directory: some 5 µs a file.
func Open(dir string, opts Options) (*Ring, error) {
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("open output ring %s: %w", dir, err)
	}
	r := &Ring{dir: dir, opts: opts.withDefaults(), live: map[string]*Writer{}, files: map[string]*file{}}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("open output ring: %w", err)
	}
	if err := r.find(); err != nil {
		return nil, fmt.Errorf("open output ring %s: %w", dir, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.makeRoom(0, 0)
	return r, nil
}

// find takes in the files that are there. Others than the ring's are left
// alone.
func (r *Ring) find() error {
	type found struct {
		*file
		changed time.Time
	}
	var all []found
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base, whole := strings.CutSuffix(path, suffixWhole)
		base, cut := strings.CutSuffix(base, suffixCut)
		if !d.Type().IsRegular() || whole == cut {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(r.dir, base)
		if err != nil {
			return err
		}
		all = append(all, found{&file{path: rel, cut: cut, charged: blocks(info.Size())}, info.ModTime()})
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b found) int { return a.changed.Compare(b.changed) })
	for _, f := range all {
		if twin := r.files[f.path]; twin != nil { // one attempt, both suffixes: keep the newer
			r.remove(twin)
		}
		r.files[f.path] = f.file
		r.total += f.charged
		f.place = r.ended.PushBack(f.file)
	}
	return nil
}

// Create starts the output of an attempt. No file is made before the first
// byte; an older output under the same key is replaced then. The Writer must be
// closed. It answers ErrLive while another Writer has the key.
func (r *Ring) Create(key Key) (*Writer, error) {
	path := key.path()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live[path] != nil {
		return nil, fmt.Errorf("create output %s: %w", key, ErrLive)
	}
	w := &Writer{ring: r, path: path}
	r.live[path] = w
	return w, nil
}

// openFile makes the file of a live attempt. The disk is not waited for under the
// mutex: making a file may take it long.
func (r *Ring) openFile(path string) (*os.File, *file, error) {
	f := &file{path: path, charged: block}
	r.mu.Lock()
	if old := r.files[path]; old != nil {
		r.remove(old)
	}
	if !r.makeRoom(block, 1) {
		r.mu.Unlock()
		return nil, nil, ErrFull
	}
	r.files[path] = f
	r.total += f.charged
	r.mu.Unlock()

	h, err := create(r.fullPath(f))
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.files, path)
		r.total -= f.charged
		return nil, nil, err
	}
	return h, f, nil
}

// create makes a file and its directories, which remove may just be deleting
// because they were empty.
func create(path string) (h *os.File, err error) {
	for range 10 {
		h, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
		if !errors.Is(err, fs.ErrNotExist) {
			return h, err
		}
		if err = os.MkdirAll(filepath.Dir(path), 0o750); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, err
}

// grow charges f for its new size, deleting the oldest files for it.
func (r *Ring) grow(f *file, size int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	more := blocks(size) - f.charged
	if more <= 0 {
		return nil
	}
	if !r.makeRoom(more, 0) {
		return ErrFull
	}
	f.charged += more
	r.total += more
	return nil
}

// shed deletes the oldest files until n bytes are free, and tells whether there
// were any.
func (r *Ring) shed(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.total
	for r.ended.Len() > 0 && before-r.total < n {
		r.remove(r.ended.Front().Value.(*file))
	}
	return r.total < before
}

// markCut gives f the name of a cut file.
func (r *Ring) markCut(f *file) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.fullPath(f)
	f.cut = true
	if err := os.Rename(old, r.fullPath(f)); err != nil {
		f.cut = false
		return err
	}
	return nil
}

// end takes the output from the live to the ended ones. f is nil when nothing
// was printed.
func (r *Ring) end(path string, f *file) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, path)
	if f != nil {
		f.place = r.ended.PushBack(f)
		r.makeRoom(0, 0)
	}
}

// makeRoom deletes the oldest ended files until that many more bytes and files
// are within the limits, and tells whether the bytes are. Live attempts alone may
// exceed the number of files. The caller holds the mutex.
func (r *Ring) makeRoom(bytes int64, files int) bool {
	for r.total+bytes > r.opts.MaxTotalBytes || len(r.files)+files > r.opts.MaxFiles {
		if r.ended.Len() == 0 {
			return r.total+bytes <= r.opts.MaxTotalBytes
		}
		r.remove(r.ended.Front().Value.(*file))
	}
	return true
}

// remove deletes f and the directories that it leaves empty. A file that cannot
// be deleted is no longer counted: the next Open finds it again. The caller
// holds the mutex.
func (r *Ring) remove(f *file) {
	full := r.fullPath(f)
	_ = os.Remove(full)
	job := filepath.Dir(full)
	if os.Remove(job) == nil { // refused unless empty
		_ = os.Remove(filepath.Dir(job))
	}
	if f.place != nil {
		r.ended.Remove(f.place)
	}
	delete(r.files, f.path)
	r.total -= f.charged
}

func (r *Ring) fullPath(f *file) string {
	if f.cut {
		return filepath.Join(r.dir, f.path+suffixCut)
	}
	return filepath.Join(r.dir, f.path+suffixWhole)
}

// Usage is what the ring holds now.
type Usage struct {
	Bytes int64 // disk space
	Files int
	Live  int // attempts being written, with or without a file
}

// Usage answers what the ring holds now.
func (r *Ring) Usage() Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Usage{Bytes: r.total, Files: len(r.files), Live: len(r.live)}
}

// blocks is the disk space of a file of that size; the empty file costs too.
func blocks(size int64) int64 { return max(1, (size+block-1)/block) * block }
