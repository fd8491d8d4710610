package exact

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// SeedVariable is the environment variable from whose text the bubbles of a
// process draw. All bubbles of a process begin with the same numbers.
const SeedVariable = "LEADERD_SIM_SEED"

// Environment are the variables that a process needs beside SeedVariable, and
// its build too. A run that takes more memory than almost all do may not repeat.
func Environment() []string {
	return []string{"GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=1GiB", "GODEBUG=asyncpreemptoff=1,gcstoptheworld=2", BuildEnvironment}
}

// BuildEnvironment is what the build of an exact program needs.
const BuildEnvironment = "GOEXPERIMENT=norandomizedheapbase64"

// change replaces one piece of a file of the standard library, which must be
// there once.
type change struct{ file, from, to string }

var changes = []change{
	// Random numbers.
	{"runtime/rand.go", "	globalRand.state.Init(*seed)\n", "	*seed = [32]byte{1}\n	globalRand.state.Init(*seed)\n"},
	{"runtime/rand.go", "	mp := getg().m\n	c := &mp.chacha8\n", "	if getg().bubble != nil {\n		return simRand()\n	}\n	mp := getg().m\n	c := &mp.chacha8\n"},
	{"runtime/rand.go", "// rand32 is uint32(rand())", generator + "// rand32 is uint32(rand())"},
	{"runtime/synctest.go", "	bubble.now = synctestBaseTime\n", "	bubble.now = synctestBaseTime\n	simBegin()\n"},
	{"runtime/select.go", "cheaprandn(uint32(norder + 1))", "randn(uint32(norder + 1))"},
	{"runtime/time.go", "t.rand = cheaprand()", "t.rand = rand32()"},
	{"runtime/sema.go", "s.ticket = cheaprand() | 1", "s.ticket = rand32() | 1"},
	// The scheduler.
	{"runtime/proc.go", "	gp := mp.curg\n	if gp == nil || gp == mp.g0 {\n		return false\n	}\n	if readgstatus(gp)&^_Gscan == _Gsyscall {\n", "	gp := mp.curg\n	if gp == nil || gp == mp.g0 || gp.bubble != nil {\n		return false\n	}\n	if readgstatus(gp)&^_Gscan == _Gsyscall {\n"},
	{"runtime/proc.go", "	if !inheritTime {\n		mp.p.ptr().schedtick++\n", "	if !inheritTime && gp.bubble != nil {\n		mp.p.ptr().schedtick++\n"},
	// Contexts.
	{"context/context.go", "	children map[canceler]struct{}", "	children map[canceler]uint64"},
	{"context/context.go", "make(map[canceler]struct{})", "make(map[canceler]uint64)"},
	{"context/context.go", "p.children[child] = struct{}{}", "simChildren++\n			p.children[child] = simChildren"},
	{"context/context.go", "range c.children {", "range simInOrder(c.children) {"},
	{"context/context.go", "// A cancelCtx can be canceled. ", inOrder + "// A cancelCtx can be canceled. "},
	// Mutexes.
	{"runtime/sema.go", "func internal_sync_nanotime() int64 {\n", "func internal_sync_nanotime() int64 {\n	if bubble := getg().bubble; bubble != nil {\n		return bubble.now\n	}\n"},
}

// generator is SplitMix64. The goroutines of a bubble share it; with one P no
// two run at a time.
const generator = `// simState is the state of the bubble's random numbers.
var simState uint64

// simBegin begins the bubble's random numbers anew.
func simBegin() {
	simState = 14695981039346656037
	text := gogetenv("` + SeedVariable + `")
	for i := 0; i < len(text); i++ {
		simState = (simState ^ uint64(text[i])) * 1099511628211
	}
}

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
		if n := strings.Count(text, c.from); n != 1 {
			return "", fmt.Errorf("overlay the library: %s has %d times what is to be replaced, not once: %q", path, n, c.from)
		}
		texts[path] = strings.Replace(text, c.from, c.to, 1)
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
