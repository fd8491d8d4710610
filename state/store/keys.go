package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/leaderd/leaderd/internal/mutant"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/kv"
)

// DefaultPrefix is where leaderd's keys are unless configured otherwise.
const DefaultPrefix = "/leaderd/"

// gate is the last part of the key of the live record that holds its job's
// overlap gate. It sorts behind every run id.
const gate = "~"

// keys makes and reads the keys below a prefix that ends in '/'. Every part
// that comes from a user is escaped, and every prefix that is ranged over ends
// in '/', so that no name reaches beyond its place.
type keys struct{ prefix string }

func (k keys) jobs() string     { return k.prefix + "jobs/" }
func (k keys) nodes() string    { return k.prefix + "nodes/" }
func (k keys) pending() string  { return k.prefix + "pending/" }
func (k keys) active() string   { return k.prefix + "active/" }
func (k keys) history() string  { return k.prefix + "history/" }
func (k keys) versions() string { return k.prefix + "versions/" }
func (k keys) cancels() string  { return k.prefix + "cancels/" }

func (k keys) dead() string { return k.prefix + "dead/" }

// deadOf sorts by when the runs were due.
func (k keys) deadOf(id state.JobID) string { return k.dead() + jobPart(id) + "/" }

func (k keys) deadRun(id state.JobID, run state.RunID) string {
	return k.deadOf(id) + escape(string(run))
}

func (k keys) calendars() string { return k.prefix + "calendars/" }

func (k keys) calendar(id state.CalendarID) string { return k.calendars() + calendarPart(id) }

// calendarUsers is where the jobs stand that name a calendar. Their keys are written
// with the job, so that a calendar that is named can be neither deleted nor changed
// behind a job's back.
func (k keys) calendarUsers(id state.CalendarID) string {
	return k.prefix + "calendar-users/" + calendarPart(id) + "/"
}

func (k keys) calendarUser(id state.CalendarID, job string) string {
	return k.calendarUsers(id) + escape(job)
}

func calendarPart(id state.CalendarID) string {
	return escape(id.Namespace) + "/" + escape(id.Name)
}
func (k keys) deleted() string { return k.prefix + "deleted/" }

func (k keys) watermark() string { return k.prefix + "timeline/watermark" }
func (k keys) closed() string    { return k.prefix + "timeline/closed" }

// changed is written by every change of a job, with it: while it stands, no job
// is changed.
func (k keys) changed() string { return k.prefix + "timeline/changed" }

func (k keys) node(name string) string { return k.nodes() + escape(name) }

func (k keys) job(id state.JobID) string { return k.jobs() + jobPart(id) }

// deletedJob is there from a job's deletion until a leader has given its last
// slots their verdicts, or the job is made anew.
func (k keys) deletedJob(id state.JobID) string { return k.deleted() + jobPart(id) }

// version sorts by generation.
func (k keys) version(id state.JobID, generation int64) string {
	return k.versionsOf(id) + fmt.Sprintf("%016d", generation)
}
func (k keys) versionsOf(id state.JobID) string { return k.versions() + jobPart(id) + "/" }

func (k keys) pendingRun(id state.JobID, run state.RunID) string {
	return k.pendingOf(id) + escape(string(run))
}

// pendingOf sorts by when the runs are due.
func (k keys) pendingOf(id state.JobID) string { return k.pending() + jobPart(id) + "/" }

func (k keys) cancelRun(id state.JobID, run state.RunID) string {
	return k.cancels() + jobPart(id) + "/" + escape(string(run))
}

// placesOf is where the places of a gate lie: a concurrency key's, or the job's
// own.
func (k keys) placesOf(id state.JobID, key string) string {
	if key != "" {
		return k.prefix + "gates/" + escape(id.Namespace) + "/key/" + escape(key) + "/"
	}
	return k.prefix + "gates/" + escape(id.Namespace) + "/job/" + escape(id.Name) + "/"
}

// place is one of them.
func (k keys) place(id state.JobID, key string, n int) string {
	return k.placesOf(id, key) + placePart(n)
}

func (k keys) activeOf(id state.JobID) string {
	if mutant.Off(mutant.Terminator) {
		return k.active() + jobPart(id)
	}
	return k.active() + jobPart(id) + "/"
}

func (k keys) activeGate(id state.JobID) string {
	return k.active() + jobPart(id) + "/" + gate
}

func (k keys) activeShard(id state.JobID, run state.RunID, shard int) string {
	if shard == state.HeaderShard {
		return k.shardsOf(id, run) + gate
	}
	return k.shardsOf(id, run) + strconv.Itoa(shard)
}

// shardsOf is where the live records of a run lie that does not hold the gate.
func (k keys) shardsOf(id state.JobID, run state.RunID) string {
	return k.active() + jobPart(id) + "/" + escape(string(run)) + "/"
}

func (k keys) live(l *state.Live) string {
	if l.Exclusive {
		return k.activeGate(l.Job)
	}
	return k.activeShard(l.Job, l.Run, l.Shard)
}

func (k keys) historyOf(id state.JobID) string { return k.history() + jobPart(id) + "/" }
func (k keys) historyRun(id state.JobID, run state.RunID) string {
	return k.history() + jobPart(id) + "/" + escape(string(run))
}

// payload is what a run is to work on, and result what it left.
func (k keys) payload(id state.JobID, run state.RunID) string {
	return k.payloads(id) + escape(string(run))
}

func (k keys) payloads(id state.JobID) string { return k.prefix + "payloads/" + jobPart(id) + "/" }

func (k keys) result(id state.JobID, run state.RunID) string {
	return k.results(id) + escape(string(run))
}

func (k keys) results(id state.JobID) string { return k.prefix + "results/" + jobPart(id) + "/" }

// unique is an idempotency key of a job's, which only its hash names.
func (k keys) unique(id state.JobID, key string) string {
	sum := sha256.Sum256([]byte(id.Name + "\x00" + key))
	return k.prefix + "unique/" + escape(id.Namespace) + "/" + hex.EncodeToString(sum[:20])
}

// checkpoint is the head of a shard's checkpoints: see checkpoint.go.
func (k keys) checkpoint(of state.CheckpointRef) string {
	if of.OfJob {
		return k.checkpointsOfJob(of.Job) + strconv.Itoa(of.Shard)
	}
	return k.checkpointsOf(of.Job, of.Run) + strconv.Itoa(of.Shard)
}

func (k keys) checkpoints() string { return k.prefix + "checkpoints/" }

// checkpointsOf is where those of a run lie.
func (k keys) checkpointsOf(id state.JobID, run state.RunID) string {
	return k.checkpoints() + jobPart(id) + "/" + escape(string(run)) + "/"
}

// checkpointsOfJob is where those lie that outlive runs. No run's id is written so.
func (k keys) checkpointsOfJob(id state.JobID) string {
	return k.checkpoints() + jobPart(id) + "/" + gate + "/"
}

// checkpointSlot is where what was saved lies, below the head.
func checkpointSlot(head string, n int64) string { return head + "/" + strconv.FormatInt(n, 10) }

// shardEnd is the end of the range of a key that ends in a shard's number, and of all
// below it: no other number lies in between.
func shardEnd(key string) string { return key + string(rune('/'+1)) }

func (k keys) progress() string { return k.prefix + "progress/" }

// progressOf is where the progress of a run's shards lies.
func (k keys) progressOf(id state.JobID, run state.RunID) string {
	return k.progress() + jobPart(id) + "/" + escape(string(run)) + "/"
}

// parseJob reads the job's id from the rest of a key, "<ns>/<job>" and perhaps
// "/<more>".
func parseJob(rest string) (id state.JobID, more string, err error) {
	ns, below, ok := strings.Cut(rest, "/")
	if !ok {
		return id, "", fmt.Errorf("key part %q names no job", rest)
	}
	name, more, _ := strings.Cut(below, "/")
	if id.Namespace, err = unescape(ns); err != nil {
		return id, "", err
	}
	if id.Name, err = unescape(name); err != nil {
		return id, "", err
	}
	return id, more, nil
}

func jobPart(id state.JobID) string { return escape(id.Namespace) + "/" + escape(id.Name) }

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || c == '-' || c == '_' || c == '.'
}

// plainTo is how many bytes of s need no escape.
func plainTo(s string) int {
	i := 0
	for i < len(s) && isPlain(s[i]) {
		i++
	}
	return i
}

// escape writes every byte that is not plain as %XX. The empty string is "%".
func escape(s string) string {
	if s != "" && plainTo(s) == len(s) {
		return s
	}
	return string(appendEscaped(make([]byte, 0, 3*len(s)+1), s))
}

func appendEscaped(to []byte, s string) []byte {
	if s == "" {
		return append(to, '%')
	}
	const hex = "0123456789ABCDEF"
	for {
		n := plainTo(s)
		to = append(to, s[:n]...)
		if n == len(s) {
			return to
		}
		to = append(to, '%', hex[s[n]>>4], hex[s[n]&15])
		s = s[n+1:]
	}
}

// unescape is the inverse of escape.
func unescape(s string) (string, error) {
	if s == "%" {
		return "", nil
	}
	if strings.IndexByte(s, '%') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("key part %q: broken escape", s)
		}
		c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("key part %q: broken escape", s)
		}
		b.WriteByte(byte(c))
		i += 2
	}
	return b.String(), nil
}

// end is the end of the range of all keys below prefix, which ends in '/'.
func end(prefix string) string { return kv.PrefixEnd(prefix) }
