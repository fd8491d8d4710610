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
// its build too.
func Environment() []string {
	return []string{"GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1", BuildEnvironment}
}

// BuildEnvironment is what the build of an exact program needs.
const BuildEnvironment = "GOEXPERIMENT=norandomizedheapbase64"

// change replaces one piece of the runtime's source, which must be there once.
type change struct{ file, from, to string }

var changes = []change{
	// Random numbers.
	{"rand.go", "	globalRand.state.Init(*seed)\n", "	*seed = [32]byte{1}\n	globalRand.state.Init(*seed)\n"},
	{"rand.go", "	mp := getg().m\n	c := &mp.chacha8\n", "	if getg().bubble != nil {\n		return simRand()\n	}\n	mp := getg().m\n	c := &mp.chacha8\n"},
	{"rand.go", "// rand32 is uint32(rand())", generator + "// rand32 is uint32(rand())"},
	{"synctest.go", "	bubble.now = synctestBaseTime\n", "	bubble.now = synctestBaseTime\n	simBegin()\n"},
	{"select.go", "cheaprandn(uint32(norder + 1))", "randn(uint32(norder + 1))"},
	{"time.go", "t.rand = cheaprand()", "t.rand = rand32()"},
	{"sema.go", "s.ticket = cheaprand() | 1", "s.ticket = rand32() | 1"},
	// The scheduler.
	{"proc.go", "	gp := mp.curg\n	if gp == nil || gp == mp.g0 {\n		return false\n	}\n	if readgstatus(gp)&^_Gscan == _Gsyscall {\n", "	gp := mp.curg\n	if gp == nil || gp == mp.g0 || gp.bubble != nil {\n		return false\n	}\n	if readgstatus(gp)&^_Gscan == _Gsyscall {\n"},
	{"proc.go", "	if !inheritTime {\n		mp.p.ptr().schedtick++\n", "	if !inheritTime && gp.bubble != nil {\n		mp.p.ptr().schedtick++\n"},
	// Mutexes.
	{"sema.go", "func internal_sync_nanotime() int64 {\n", "func internal_sync_nanotime() int64 {\n	if bubble := getg().bubble; bubble != nil {\n		return bubble.now\n	}\n"},
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

// Write writes the overlay for the Go tree at goroot into the directory dir, and
// answers the file that go build -overlay takes. It fails where the runtime's
// source is not what the changes were written for.
func Write(goroot, dir string) (string, error) {
	texts := map[string]string{}
	for _, c := range changes {
		path := filepath.Join(goroot, "src", "runtime", c.file)
		text, ok := texts[path]
		if !ok {
			data, err := os.ReadFile(path)
			if err != nil {
				return "", fmt.Errorf("overlay the runtime: %w", err)
			}
			text = string(data)
		}
		if n := strings.Count(text, c.from); n != 1 {
			return "", fmt.Errorf("overlay the runtime: %s has %d times what is to be replaced, not once: %q", path, n, c.from)
		}
		texts[path] = strings.Replace(text, c.from, c.to, 1)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("overlay the runtime: %w", err)
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for path, text := range texts {
		to := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("overlay the runtime: %w", err)
		}
		overlay.Replace[path] = to
	}
	data, err := json.MarshalIndent(overlay, "", "  ")
	if err != nil {
		return "", fmt.Errorf("overlay the runtime: %w", err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		return "", fmt.Errorf("overlay the runtime: %w", err)
	}
	return name, nil
}
