package executor

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// diaryLines is how many lines may wait for a log that is slow.
	diaryLines = 1024
	// diaryGrace is how long the end of a diary waits for its log.
	diaryGrace = time.Second
)

// diary passes lines on to a log from a goroutine of its own. A log that blocks
// (a full disk, a pipe that nobody reads) must hold up neither the end of work
// whose registration is over, nor a drain, nor those that share a group commit. So
// to add a line never blocks; those that find no room are counted and dropped.
type diary struct {
	log   hclog.Logger
	lines chan line
	lost  atomic.Int64
}

type line struct {
	level hclog.Level
	text  string
	args  []any
}

func newDiary(log hclog.Logger) *diary { return &diary{log: log, lines: make(chan line, diaryLines)} }

// open begins to pass lines on, until close. That waits until all are told, or for
// diaryGrace: a log that blocks for longer is left behind with its goroutine.
func (d *diary) open() (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case l := <-d.lines:
				d.tell(&l)
			case <-stop:
				for len(d.lines) > 0 {
					l := <-d.lines
					d.tell(&l)
				}
				return
			}
		}
	}()
	return func() {
		close(stop)
		patience := time.NewTimer(diaryGrace)
		defer patience.Stop()
		select {
		case <-done:
		case <-patience.C:
		}
	}
}

func (d *diary) tell(l *line) {
	if n := d.lost.Swap(0); n > 0 {
		d.log.Warn("the log was too slow, lines were dropped", "lines", n)
	}
	d.log.Log(l.level, l.text, l.args...)
}

func (d *diary) add(level hclog.Level, text string, args []any) {
	select {
	case d.lines <- line{level, text, args}:
	default:
		d.lost.Add(1)
	}
}

// IsDebug tells whether Debug is of any use.
func (d *diary) IsDebug() bool { return d.log.IsDebug() }

func (d *diary) Debug(text string, args ...any) {
	if d.log.IsDebug() {
		d.add(hclog.Debug, text, args)
	}
}

func (d *diary) Info(text string, args ...any)  { d.add(hclog.Info, text, args) }
func (d *diary) Warn(text string, args ...any)  { d.add(hclog.Warn, text, args) }
func (d *diary) Error(text string, args ...any) { d.add(hclog.Error, text, args) }
