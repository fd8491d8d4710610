package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	cgroupVariable = "KUBERNETES_TEST_CGROUP"
	cgroups        = "/sys/fs/cgroup"
)

// hierarchies are the roots of the machine's control groups: one where they are
// unified, else one for each controller.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers")); err == nil {
		return []string{cgroups}, nil
	}
	entries, err := os.ReadDir(cgroups)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		if e.IsDir() { // others are second names
			all = append(all, filepath.Join(cgroups, e.Name()))
		}
	}
	return all, nil
}

// makeCgroup makes a control group below which a node keeps those of its pods.
func makeCgroup(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		// Where these are empty, no process may enter; those of the parent do.
		for at := filepath.Join(root, strings.Split(name, "/")[0]); ; at = dir {
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				content, err := os.ReadFile(filepath.Join(filepath.Dir(at), file))
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if err == nil {
					err = os.WriteFile(filepath.Join(at, file), content, 0o644)
				}
				if err != nil {
					return fmt.Errorf("control group: %w", err)
				}
			}
			if at == dir {
				break
			}
		}
		if root == cgroups {
			if err := delegate(root, name); err != nil {
				return err
			}
		}
		if err := weigh(filepath.Join(root, strings.Split(name, "/")[0])); err != nil {
			return err
		}
	}
	return nil
}

// weigh has the pods of all nodes together count as some processes of the machine do,
// and not as a single one, which a busy machine would starve.
func weigh(group string) error {
	for file, weight := range map[string]string{"cpu.shares": "12288", "cpu.weight": "1200"} {
		file = filepath.Join(group, file)
		if _, err := os.Stat(file); err != nil {
			continue // another controller's, or another version
		}
		if err := os.WriteFile(file, []byte(weight), 0o644); err != nil {
			return fmt.Errorf("control group: %w", err)
		}
	}
	return nil
}

// delegate lets groups of a unified hierarchy down to name limit what is in them.
func delegate(root, name string) error {
	all, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return err
	}
	at := root
	for _, part := range append(strings.Split(name, "/"), "") {
		for controller := range strings.FieldsSeq(string(all)) {
			// Some cannot be had below the root, and the kubelet needs not all.
			_ = os.WriteFile(filepath.Join(at, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
		}
		at = filepath.Join(at, part)
	}
	return nil
}

// removeCgroups removes a group and those below it, once their processes, which
// are being killed, are gone.
func removeCgroups(name string) {
	roots, err := hierarchies()
	if err != nil {
		fmt.Println("control groups:", err)
		return
	}
	for _, root := range roots {
		if err := removeTree(filepath.Join(root, name)); err != nil {
			fmt.Println("left behind:", err)
		}
	}
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for range 100 {
		if err = syscall.Rmdir(dir); !errors.Is(err, syscall.EBUSY) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}
