package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// mounts makes the mounts of a node in this process's namespace: its own state
// below /run and /var/lib/kubelet in memory, the rest below dir.
func mounts(dir string) error {
	// No other namespace sees what is mounted from here on,
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// but containers see the volumes that the kubelet mounts.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	if err := freshSys(filepath.Join(dir, "cgroup")); err != nil {
		return err
	}
	for _, target := range []string{"/run", "/var/lib/kubelet", filepath.Join(dir, "containerd")} {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount("tmpfs", target, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	if err := syscall.Mount("", "/var/lib/kubelet", "", syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share /var/lib/kubelet: %w", err)
	}
	for from, target := range map[string]string{"cni": networkDir, "pods": "/var/log/pods", "containers": "/var/log/containers"} {
		from = filepath.Join(dir, from)
		for _, d := range []string{from, target} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				return err
			}
		}
		if err := syscall.Mount(from, target, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	for file, content := range map[string]string{
		"/proc/sys/net/ipv4/ip_forward":                       "1",
		"/proc/sys/net/bridge/bridge-nf-call-iptables":        "1", // pods of one node see each other through rules too
		"/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal": "1",
	} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// privateHosts has the namespace's own /etc/hosts in file, for AddHost.
func privateHosts(file string) error {
	content, err := os.ReadFile("/etc/hosts")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, append(content, '\n'), 0o644); err != nil {
		return err
	}
	if err := syscall.Mount(file, "/etc/hosts", "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount /etc/hosts: %w", err)
	}
	return nil
}

// freshSys mounts /sys anew, so that it shows the namespace's network, and puts the
// machine's control groups back into it.
func freshSys(spare string) error {
	if err := os.MkdirAll(spare, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount(cgroups, spare, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("bind control groups: %w", err)
	}
	if err := syscall.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	if err := syscall.Mount(spare, cgroups, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("bind control groups: %w", err)
	}
	return nil
}

// holdNode keeps the namespaces of a further node until it is told to end.
func holdNode() int {
	dir := os.Getenv(dirVariable)
	if err := mounts(dir); err != nil {
		fmt.Println("prepare a node:", err)
		return 1
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	if err := os.WriteFile(filepath.Join(dir, "prepared"), nil, 0o600); err != nil {
		fmt.Println(err)
		return 1
	}
	<-told
	return 0
}
