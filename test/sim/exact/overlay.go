package exact

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Environment are the variables that an exact program needs when it runs, and
// nothing else: the environment takes memory, and moves what comes after it. A run
// that takes more memory than almost all do may not repeat.
func Environment() []string {
	return []string{"GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=1GiB", "GODEBUG=asyncpreemptoff=1,gcstoptheworld=2,gcshrinkstackoff=1", BuildVariable}
}

// BuildVariable is the environment variable that go build and go test need, beside
// the arguments of BuildArgs.
const BuildVariable = "GOEXPERIMENT=norandomizedheapbase64"

// change replaces one piece of a file of the standard library, which must be
// there the given number of times.
type change struct {
	file, from, to string
	times          int
}

var changes = []change{
	// Random numbers.
	{"runtime/rand.go", "	globalRand.state.Init(*seed)\n", "	*seed = [32]byte{1}\n	globalRand.state.Init(*seed)\n", 1},
	{"runtime/rand.go", "	mp := getg().m\n	c := &mp.chacha8\n", "	if getg().bubble != nil {\n		return simRand()\n	}\n	mp := getg().m\n	c := &mp.chacha8\n", 1},
	{"runtime/rand.go", "// rand32 is uint32(rand())", generator + "// rand32 is uint32(rand())", 1},
	{"runtime/synctest.go", "	bubble.now = synctestBaseTime\n", "	bubble.now = synctestBaseTime\n	simBegin()\n", 1},
	{"internal/runtime/maps/map.go", "m.seed = uintptr(rand())", "m.seed = 0x9e3779b97f4a7c15", 4},
	{"internal/sync/hashtriemap.go", "ht.seed = uintptr(runtime_rand())", "ht.seed = 0x9e3779b97f4a7c15", 1},
	{"runtime/select.go", "cheaprandn(uint32(norder + 1))", "randn(uint32(norder + 1))", 1},
	// Of timers that are due at one instant the order is drawn when they are made.
	// Where it is drawn anew each time that one comes into the heap, it tells whether
	// that had been cleaned meanwhile, which is not the same in each run.
	{"runtime/time.go", "t.rand = cheaprand()", "", 1},
	{"runtime/time.go", "	t.f = f\n	t.arg = arg\n}\n", "	t.f = f\n	t.arg = arg\n	t.rand = rand32()\n}\n", 1},
	{"runtime/sema.go", "s.ticket = cheaprand() | 1", "s.ticket = rand32() | 1", 1},
	// The scheduler.
	{"runtime/proc.go", "	gp := mp.curg\n	if gp == nil || gp == mp.g0 {\n		return false\n	}\n	if readgstatus(gp)&^_Gscan == _Gsyscall {\n", "	gp := mp.curg\n	if gp == nil || gp == mp.g0 || gp.bubble != nil {\n		return false\n	}\n	if readgstatus(gp)&^_Gscan == _Gsyscall {\n", 1},
	{"runtime/proc.go", "	if !inheritTime {\n		mp.p.ptr().schedtick++\n", "	if !inheritTime && gp.bubble != nil {\n		mp.p.ptr().schedtick++\n", 1},
	// Speed. Memory is not given back, for the first touch of a page is dear, and
	// goroutines begin with the stack that most of them need.
	{"runtime/mgcscavenge.go", "	assertWorldStoppedOrLockHeld(&mheap_.lock)\n\n	// As described", "	assertWorldStoppedOrLockHeld(&mheap_.lock)\n	scavenge.gcPercentGoal.Store(^uint64(0))\n	scavenge.memoryLimitGoal.Store(^uint64(0))\n	if lastHeapGoal <= ^uint64(0) {\n		return\n	}\n\n	// As described", 1},
	{"runtime/stack.go", "var startingStackSize uint32 = fixedStack\n", "var startingStackSize uint32 = 8 * fixedStack\n", 1},
	{"runtime/stack.go", "		startingStackSize = fixedStack\n		return\n", "		return\n", 1},
	{"runtime/stack.go", "	startingStackSize = uint32(round2(int32(avg)))\n", "", 1},
	// Contexts.
	{"context/context.go", "	children map[canceler]struct{}", "	children map[canceler]uint64", 1},
	{"context/context.go", "make(map[canceler]struct{})", "make(map[canceler]uint64)", 1},
	{"context/context.go", "p.children[child] = struct{}{}", "simChildren++\n			p.children[child] = simChildren", 1},
	{"context/context.go", "range c.children {", "range simInOrder(c.children) {", 1},
	{"context/context.go", "// A cancelCtx can be canceled. ", inOrder + "// A cancelCtx can be canceled. ", 1},
	// Stacks, which are logged and stored: of the same place they are the same.
	{"runtime/debug/stack.go", "			return buf[:n]\n", "			return simScrub(buf[:n])\n", 1},
	{"runtime/debug/stack.go", "// Stack returns", scrub + "// Stack returns", 1},
	// Mutexes.
	{"runtime/sema.go", "func internal_sync_nanotime() int64 {\n", "func internal_sync_nanotime() int64 {\n	if bubble := getg().bubble; bubble != nil {\n		return bubble.now\n	}\n", 1},
}

// generator is SplitMix64. The goroutines of a bubble share it; with one P no
// two run at a time.
const generator = `// simState is the state of the bubble's random numbers.
var simState uint64

// simBegin begins the bubble's random numbers anew, and the scheduler's counter.
func simBegin() {
	simState = 0
	getg().m.p.ptr().schedtick = 0
}

// simSeed is exact.Begin.
//
//go:linkname simSeed
func simSeed(seed uint64) { simState = seed * 0xd1342543de82ef95 }

//go:nosplit
func simRand() uint64 {
	simState += 0x9e3779b97f4a7c15
	x := simState
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

`

// inOrder has the children of a context end in the order of their making, in
// place of one that depends on their addresses.
const inOrder = `// simChildren numbers the children of all contexts.
var simChildren uint64

func simInOrder(children map[canceler]uint64) func(func(canceler) bool) {
	return func(yield func(canceler) bool) {
		for len(children) > 0 {
			var first canceler
			least := ^uint64(0)
			for child, n := range children {
				if n < least {
					first, least = child, n
				}
			}
			delete(children, first)
			if !yield(first) {
				return
			}
		}
	}
}

`

// scrub leaves out of a stack what differs from process to process: the numbers of
// goroutines and bubbles, and addresses.
const scrub = `func simScrub(stack []byte) []byte {
	clean, digits := make([]byte, 0, len(stack)), false
	for i := 0; i < len(stack); i++ {
		c := stack[i]
		hex := i >= 2 && stack[i-2] == '0' && stack[i-1] == 'x'
		number := c >= '0' && c <= '9' && i > 0 && stack[i-1] == ' '
		if hex || number {
			digits = true
		}
		if digits = digits && (c >= '0' && c <= '9' || c >= 'a' && c <= 'f'); !digits {
			clean = append(clean, c)
		}
	}
	return clean
}

`

// BuildArgs are the arguments of go build and go test for an exact program, with
// more build tags where they are given. They write the overlay into dir.
func BuildArgs(ctx context.Context, dir string, tags ...string) ([]string, error) {
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	overlay, err := Write(strings.TrimSpace(string(goroot)), dir)
	if err != nil {
		return nil, err
	}
	return []string{"-overlay", overlay, "-tags", strings.Join(append(tags, "exact"), ",")}, nil
}

// Write writes the overlay for the Go tree at goroot into the directory dir, and
// answers the file that go build -overlay takes. It fails where the
// library's source is not what the changes were written for.
func Write(goroot, dir string) (string, error) {
	texts := map[string]string{}
	for _, c := range changes {
		path := filepath.Join(goroot, "src", filepath.FromSlash(c.file))
		text, ok := texts[path]
		if !ok {
			data, err := os.ReadFile(path)
			if err != nil {
				return "", fmt.Errorf("overlay the library: %w", err)
			}
			text = string(data)
		}
		if n := strings.Count(text, c.from); n != c.times {
			return "", fmt.Errorf("overlay the library: %s has %d times what is to be replaced, not %d times: %q", path, n, c.times, c.from)
		}
		texts[path] = strings.ReplaceAll(text, c.from, c.to)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("overlay the library: %w", err)
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for path, text := range texts {
		to := filepath.Join(dir, filepath.Base(filepath.Dir(path))+"_"+filepath.Base(path))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("overlay the library: %w", err)
		}
		overlay.Replace[path] = to
	}
	data, err := json.MarshalIndent(overlay, "", "  ")
	if err != nil {
		return "", fmt.Errorf("overlay the library: %w", err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		return "", fmt.Errorf("overlay the library: %w", err)
	}
	return name, nil
}
