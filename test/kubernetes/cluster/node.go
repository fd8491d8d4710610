package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"
)

const (
	pluginDir  = "/usr/lib/cni"
	networkDir = "/etc/cni/net.d"
	pauseImage = "localhost/pause:1"
	// podNet has the /24 of each node.
	podNet    = "198.18.16.0/20"
	runtimeAt = "/run/containerd/containerd.sock"
)

// Node is one machine of the cluster: containerd, a kubelet, kube-proxy, and
// kube-router, which enforces network policies.
type Node struct {
	Name string

	number    int
	dir       string
	into      []string // what to run a program with, for it to be on this node
	processes *processes
	holder    *process
	kubelet   *process
}

func nodeDir(dir string, number int) string { return filepath.Join(dir, "node"+strconv.Itoa(number)) }

func nodeAddress(number int) string { return "198.18.0.1" + strconv.Itoa(number) }

// command runs a program on the node.
func (n *Node) command(program string, args ...string) *exec.Cmd {
	path, args := n.processes.tools.command(program, args...)
	if _, err := os.Stat(path); err != nil {
		path = program // of the machine
	}
	all := append(append([]string{}, n.into...), append([]string{path}, args...)...)
	return exec.Command(all[0], all[1:]...)
}

func (n *Node) start(name, program string, args ...string) (*process, error) {
	return n.processes.run(n.Name+"-"+name, n.command(program, args...))
}

// startNode starts what a node consists of. It is Ready some seconds later.
func (c *Cluster) startNode(ctx context.Context, number int, images []string) (*Node, error) {
	n := &Node{
		Name: "node" + strconv.Itoa(number), number: number, dir: nodeDir(c.dir, number), processes: &c.processes,
	}
	if number > 0 {
		if err := n.hold(ctx); err != nil {
			return nil, err
		}
	}
	address := nodeAddress(number)
	if err := c.pki.Issue(n.Name, n.Name, "", address, n.Name); err != nil {
		return nil, err
	}
	kubeconfig, err := c.pki.Kubeconfig(n.Name+"-kubelet", c.server, "system:node:"+n.Name, "system:nodes")
	if err != nil {
		return nil, err
	}
	cgroup := os.Getenv(cgroupVariable) + "/" + n.Name
	if err := makeCgroup(cgroup); err != nil {
		return nil, err
	}
	files, err := n.files(c.pki, cgroup)
	if err != nil {
		return nil, err
	}
	containerd, err := n.start("containerd", "containerd", "--config", files.containerd)
	if err != nil {
		return nil, err
	}
	if err := await(ctx, "containerd serves", func() error { return n.ctr("version") }, containerd); err != nil {
		return nil, err
	}
	for _, image := range images {
		if err := n.ctr("images", "import", image); err != nil {
			return nil, err
		}
	}
	if n.kubelet, err = n.start("kubelet", "kubelet", "--config="+files.kubelet, "--kubeconfig="+kubeconfig,
		"--hostname-override="+n.Name, "--node-ip="+address, "--root-dir=/var/lib/kubelet"); err != nil {
		return nil, err
	}
	if _, err := n.start("proxy", "kube-proxy", "--kubeconfig="+c.proxyConfig, "--hostname-override="+n.Name,
		"--proxy-mode=iptables", "--cluster-cidr="+podNet, "--metrics-bind-address=127.0.0.1:10249", "--healthz-bind-address=127.0.0.1:10256"); err != nil {
		return nil, err
	}
	if err := await(ctx, n.Name+" is known", func() error {
		_, err := c.Kubectl(ctx, "get", "node", n.Name)
		return err
	}, n.kubelet); err != nil {
		return nil, err
	}
	// Only now, since it ends where it does not find its node.
	_, err = n.start("policy", "kube-router", "--kubeconfig="+c.kubeconfig, "--hostname-override="+n.Name,
		"--run-firewall=true", "--run-router=false", "--run-service-proxy=false", "--service-cluster-ip-range="+serviceNet)
	return n, err
}

// ctr runs containerd's own command line.
func (n *Node) ctr(args ...string) error {
	out, err := n.command("ctr", append([]string{"--address", runtimeAt, "--namespace", "k8s.io"}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: ctr %s: %w: %s", n.Name, strings.Join(args, " "), err, out)
	}
	return nil
}

// hold makes namespaces for a further node, and plugs it into the switch.
func (n *Node) hold(ctx context.Context) error {
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return err
	}
	cmd := again("node")
	cmd.Env = append(cmd.Env, dirVariable+"="+n.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	var err error
	if n.holder, err = n.processes.run(n.Name+"-holder", cmd); err != nil {
		return err
	}
	if err := await(ctx, n.Name+" is prepared", func() error {
		_, err := os.Stat(filepath.Join(n.dir, "prepared"))
		return err
	}, n.holder); err != nil {
		return err
	}
	pid := strconv.Itoa(n.holder.cmd.Process.Pid)
	n.into = []string{"nsenter", "--target", pid, "--net", "--mount", "--"}
	in := func(args ...string) []string { return append(append([]string{}, n.into...), args...) }
	return commands([][]string{
		{"ip", "link", "add", n.cable(), "type", "veth", "peer", "name", "eth0", "netns", pid},
		{"ip", "link", "set", n.cable(), "master", "nodes", "up"},
		in("ip", "link", "set", "lo", "up"),
		in("ip", "address", "add", nodeAddress(n.number)+"/24", "dev", "eth0"),
		in("ip", "link", "set", "eth0", "up"),
		in("ip", "route", "add", "default", "via", nodeAddress(0)),
		{"ip", "route", "replace", n.podNet(), "via", nodeAddress(n.number)},
	})
}

func (n *Node) cable() string { return "cable" + strconv.Itoa(n.number) }

func (n *Node) podNet() string { return fmt.Sprintf("198.18.%d.0/24", 16+n.number) }

// Unplug cuts a further node off from all others; Plug ends that.
func (n *Node) Unplug() error {
	return commands([][]string{{"ip", "link", "set", n.cable(), "down"}})
}

func (n *Node) Plug() error {
	return commands([][]string{{"ip", "link", "set", n.cable(), "up"}, {"ip", "route", "replace", n.podNet(), "via", nodeAddress(n.number)}})
}

// nodeFiles are the configuration of a node's programs.
type nodeFiles struct{ containerd, kubelet string }

func (n *Node) files(pki *Authority, cgroup string) (nodeFiles, error) {
	f := nodeFiles{containerd: filepath.Join(n.dir, "containerd.toml"), kubelet: filepath.Join(n.dir, "kubelet.yaml")}
	containerd := strings.NewReplacer("DIR", n.dir, "SOCKET", runtimeAt, "PLUGINS", pluginDir, "NETWORKS", networkDir, "PAUSE", pauseImage).
		Replace(containerdConfig)
	kubelet, err := yaml.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"authentication": map[string]any{
			"x509": map[string]any{"clientCAFile": pki.File("ca.crt")}, "webhook": map[string]any{"enabled": true},
			"anonymous": map[string]any{"enabled": false},
		},
		"authorization":            map[string]any{"mode": "Webhook"},
		"tlsCertFile":              pki.File(n.Name + ".crt"),
		"tlsPrivateKeyFile":        pki.File(n.Name + ".key"),
		"containerRuntimeEndpoint": "unix://" + runtimeAt,
		"cgroupDriver":             "cgroupfs",
		"cgroupRoot":               "/" + cgroup,
		"failCgroupV1":             false,
		"failSwapOn":               false,
		"clusterDNS":               []string{dnsService},
		"clusterDomain":            "cluster.local",
		"resolvConf":               "",
		"maxPods":                  60,
		"evictionHard":             map[string]any{"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "100Mi"},
		// The images are not to be had again.
		"imageGCHighThresholdPercent":   100,
		"localStorageCapacityIsolation": false,
	})
	if err != nil {
		return f, err
	}
	network := strings.Replace(networkConfig, "PODS", n.podNet(), 1)
	for file, content := range map[string]string{
		f.containerd: containerd, f.kubelet: string(kubelet), filepath.Join(n.dir, "cni", "10-pods.conflist"): network,
	} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			return f, err
		}
	}
	return f, nil
}

// Not every machine lets root lower its processes' share in being killed when
// memory runs out; so that is restricted to what the machine allows.
const containerdConfig = `version = 2
root = "DIR/containerd"
state = "/run/containerd"
oom_score = 0
[grpc]
  address = "SOCKET"
[plugins."io.containerd.internal.v1.opt"]
  path = "DIR/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "PAUSE"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "PLUGINS"
    conf_dir = "NETWORKS"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
`

// Nothing is masqueraded: all that pods reach knows the way back, and policies on
// another node must see which pod it is.
const networkConfig = `{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "pods", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "PODS"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}]}
`
