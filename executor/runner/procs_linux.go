package runner

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

// process is one line of the process table.
type process struct {
	pid, ppid, pgid int
	start           uint64 // ticks since boot; tells it from a later owner of its pid
	dead            bool   // a zombie
	// identity is read only of those whose parent is this process or PID 1: where
	// orphans go. Others are found by their ancestors.
	identity string
}

// table is the process table at one time.
type table struct {
	began time.Time // of reading it
	byPID map[int]*process
	kids  map[int][]*process
	alive map[int]bool // process groups with a member that is no zombie
}

// tables is the newest table, shared: a thousand commands that are stopped at once
// read /proc a few times, not a thousand.
var tables struct {
	mu     sync.Mutex
	newest *table
}

// processes answers the process table as it was at oldest or later.
func processes(oldest time.Time) *table {
	tables.mu.Lock()
	defer tables.mu.Unlock()
	if tables.newest == nil || tables.newest.began.Before(oldest) {
		tables.newest = readTable()
	}
	return tables.newest
}

// readTable reads /proc. Where that cannot be read the table is empty: the process
// groups are then all that is known.
func readTable() *table {
	t := &table{began: time.Now(), byPID: map[int]*process{}, kids: map[int][]*process{}, alive: map[int]bool{}}
	proc, err := os.Open("/proc")
	if err != nil {
		return t
	}
	defer func() { _ = proc.Close() }() // opened for reading
	names, _ := proc.Readdirnames(-1)   // a part of them is better than nothing
	self := os.Getpid()
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		p, ok := readProcess(pid)
		if !ok {
			continue
		}
		if (p.ppid == self || p.ppid == 1) && !p.dead && !children.has(pid) {
			p.identity = readIdentity(pid)
		}
		t.byPID[pid] = p
		t.kids[p.ppid] = append(t.kids[p.ppid], p)
		if !p.dead {
			t.alive[p.pgid] = true
		}
	}
	return t
}

// readProcess reads /proc/<pid>/stat; ok is false when there is no such process.
func readProcess(pid int) (p *process, ok bool) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil, false
	}
	defer func() { _ = f.Close() }() // opened for reading
	var buf [1024]byte
	n, err := f.Read(buf[:])
	if err != nil {
		return nil, false
	}
	return parseStat(pid, buf[:n])
}

func parseStat(pid int, stat []byte) (*process, bool) {
	// The name in parentheses may hold anything, parentheses too.
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return nil, false
	}
	const (
		fieldState   = 0
		fieldParent  = 1
		fieldGroup   = 2
		fieldThreads = 17
		fieldStart   = 19
	)
	fields := bytes.Fields(stat[i+1:])
	if len(fields) <= fieldStart {
		return nil, false
	}
	p := &process{pid: pid}
	var err [4]error
	var threads int
	p.ppid, err[0] = strconv.Atoi(string(fields[fieldParent]))
	p.pgid, err[1] = strconv.Atoi(string(fields[fieldGroup]))
	threads, err[2] = strconv.Atoi(string(fields[fieldThreads]))
	p.start, err[3] = strconv.ParseUint(string(fields[fieldStart]), 10, 64)
	if err != [4]error{} {
		return nil, false
	}
	switch fields[fieldState][0] {
	case 'Z': // with threads left, only the first of them has ended
		p.dead = threads <= 1
	case 'X', 'x':
		p.dead = true
	}
	return p, true
}

// readIdentity is the identity in the environment of the process, empty when it
// has none or may not be read.
func readIdentity(pid int) string {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // opened for reading
	const most = 1 << 20
	environ, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return ""
	}
	return identityIn(environ)
}
