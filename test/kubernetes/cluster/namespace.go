package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

const (
	// stage tells a process of the tests which one it is, dirVariable where a cluster
	// keeps its files.
	stage       = "KUBERNETES_TEST_STAGE"
	dirVariable = "KUBERNETES_TEST_DIR"
)

// Main runs the tests of a package, by calling tests, in the namespaces that a
// Cluster needs, and ends the process. It belongs into TestMain, and makes two more
// processes of the same program: the first one of the new namespaces, which ends all
// in them when it ends itself, and the one that runs the tests. Where the machine
// cannot have such namespaces it says what is missing, and skips the tests, or fails
// if the variable KUBERNETES_REQUIRED is set.
func Main(tests func() int) {
	switch os.Getenv(stage) {
	case "":
		os.Exit(outside())
	case "first":
		os.Exit(first())
	case "node":
		os.Exit(holdNode())
	default:
		os.Exit(tests())
	}
}

// Missing is what keeps this machine from running nodes, or nil.
func Missing() error {
	var missing []error
	if os.Geteuid() != 0 {
		missing = append(missing, errors.New("root: nodes mount file systems and make networks"))
	}
	for _, program := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "iptables", "ip", "ipset"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, fmt.Errorf("the program %s", program))
		}
	}
	for _, plugin := range []string{"bridge", "host-local", "portmap", "loopback"} {
		if _, err := os.Stat(filepath.Join(pluginDir, plugin)); err != nil {
			missing = append(missing, fmt.Errorf("the network plugin %s in %s", plugin, pluginDir))
		}
	}
	if len(missing) == 0 {
		if err := namespaces(exec.Command("/bin/true")).Run(); err != nil {
			missing = append(missing, fmt.Errorf("leave to make namespaces for network, mounts and processes: %w", err))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("this machine cannot run nodes of Kubernetes; missing: %w\nOn Debian: apt-get install containerd runc containernetworking-plugins iptables ipset iproute2",
		errors.Join(missing...))
}

func namespaces(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	return cmd
}

// outside runs the first process, and cleans up what outlives it, also if it is told
// to end itself.
func outside() int {
	if err := Missing(); err != nil {
		fmt.Println(err)
		if os.Getenv("KUBERNETES_REQUIRED") != "" {
			return 1
		}
		fmt.Println("SKIPPED; with KUBERNETES_REQUIRED=1 that is a failure")
		return 0
	}
	cache := os.Getenv("KUBERNETES_CACHE")
	if cache == "" {
		fmt.Println("KUBERNETES_CACHE must be a folder on a disk: use make test-kubernetes")
		return 1
	}
	sweep(cache)
	dir, cgroup := workDir(cache, os.Getpid()), cgroupName(os.Getpid())
	defer removeCgroups(cgroup)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() {
		if os.Getenv("KUBERNETES_KEEP") != "" {
			fmt.Println("logs and data are kept in", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			fmt.Println("left behind:", err)
		}
	}()
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	// What kills the child when its parent dies goes by threads.
	runtime.LockOSThread()
	cmd := namespaces(again("first"))
	cmd.Env = append(cmd.Env, cgroupVariable+"="+cgroup, dirVariable+"="+dir)
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	go func() {
		fmt.Println("told to end by", <-told)
		_ = cmd.Process.Kill() // and so all in its namespaces
	}()
	return exitCode(cmd.Wait())
}

func workDir(cache string, pid int) string { return filepath.Join(cache, fmt.Sprintf("run-%d", pid)) }

func cgroupName(pid int) string { return fmt.Sprintf("leaderd-test-%d", pid) }

// sweep removes what runs have left behind that were killed.
func sweep(cache string) {
	roots, err := hierarchies()
	if err != nil {
		fmt.Println("control groups:", err)
	}
	for _, in := range append(roots, cache) {
		entries, err := os.ReadDir(in)
		if err != nil {
			continue // there was no run yet
		}
		for _, e := range entries {
			var pid int
			if n, _ := fmt.Sscanf(e.Name(), "run-%d", &pid); n == 0 {
				n, _ = fmt.Sscanf(e.Name(), "leaderd-test-%d", &pid)
				if n == 0 {
					continue
				}
			}
			if syscall.Kill(pid, 0) == nil {
				continue
			}
			path := filepath.Join(in, e.Name())
			remove := os.RemoveAll
			if in != cache {
				remove = removeTree
			}
			if err := remove(path); err != nil {
				fmt.Println("left behind by an earlier run:", err)
			}
		}
	}
}

// first prepares the namespaces, has the tests run in them, and, as every first
// process must, collects what loses its parent.
func first() int {
	if err := prepare(); err != nil {
		fmt.Println("prepare the namespaces:", err)
		return 1
	}
	cmd := again("tests")
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			fmt.Println("wait:", err)
			return 1
		case pid != cmd.Process.Pid:
		case status.Exited():
			return status.ExitStatus()
		default:
			fmt.Println("the tests were ended by", status.Signal())
			return 1
		}
	}
}

// again is this program once more.
func again(as string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), stage+"="+as)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

func exitCode(err error) int {
	exit := (*exec.ExitError)(nil)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	default:
		fmt.Println(err)
		return 1
	}
}

// prepare gives the namespaces a /proc of their own processes, a loopback, and the
// mounts and network of the first node.
func prepare() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := mounts(nodeDir(os.Getenv(dirVariable), 0)); err != nil {
		return err
	}
	if err := privateHosts(filepath.Join(os.Getenv(dirVariable), "hosts")); err != nil {
		return err
	}
	return commands([][]string{
		{"ip", "link", "set", "lo", "up"},
		// The first node's interface, and the switch that other nodes are plugged into.
		{"ip", "link", "add", "nodes", "type", "bridge"},
		{"ip", "address", "add", nodeAddress(0) + "/24", "dev", "nodes"},
		{"ip", "link", "set", "nodes", "up"},
		{"ip", "route", "add", "default", "dev", "nodes"},
	})
}

// commands runs one after the other.
func commands(all [][]string) error {
	for _, c := range all {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(c, " "), err, out)
		}
	}
	return nil
}
