package cluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

const (
	nameImage = "localhost/coredns:1"
	apiPort   = "6443"
	etcdPort  = "23790"
)

//go:embed names.yaml
var nameService string

// Cluster is a whole Kubernetes with nodes that run real pods. Its first node runs
// the control plane too. It lives as long as the process, which Main started.
type Cluster struct {
	Client

	// Dir is for files of the tests, on a disk, and goes with the cluster.
	Dir string
	// Host is the first node's address, at which pods reach this process.
	Host string
	// Nodes are the machines.
	Nodes []*Node

	dir         string
	server      string
	proxyConfig string
	pki         *Authority
	processes   processes
	image       string
}

// Start starts a cluster of some nodes that know images by the archive in which
// leaderd's is, and waits until all are ready. leaderd is the program that Env's PATH
// has under that name.
func Start(ctx context.Context, tools Tools, nodes int, leaderd, image string) (*Cluster, error) {
	dir := os.Getenv(dirVariable)
	c := &Cluster{
		Dir: filepath.Join(dir, "tests"), Host: nodeAddress(0),
		dir: dir, server: "https://" + net.JoinHostPort(nodeAddress(0), apiPort), image: image,
		processes: processes{tools: tools, logs: filepath.Join(dir, "log")},
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if c.pki, err = NewAuthority(filepath.Join(dir, "pki")); err != nil {
		return nil, err
	}
	if err := c.controlPlane(ctx); err != nil {
		return nil, err
	}
	if err := c.linkPrograms(leaderd); err != nil {
		return nil, err
	}
	images, err := c.images()
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		n, err := c.startNode(ctx, i, images)
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, n)
	}
	if err := c.Apply(ctx, nameService); err != nil {
		return nil, err
	}
	if err := c.volumes(ctx); err != nil {
		return nil, err
	}
	if _, err := c.Kubectl(ctx, "wait", "--for=condition=Ready", "node", "--all", "--timeout=120s"); err != nil {
		return nil, err
	}
	_, err = c.Kubectl(ctx, "rollout", "status", "--namespace", "kube-system", "deployment/coredns", "--timeout=120s")
	return c, err
}

// controlPlane starts what a cluster has once, and waits for the API.
func (c *Cluster) controlPlane(ctx context.Context) error {
	kubeconfigs := map[string]string{}
	for name, user := range map[string]string{
		"admin": "admin", "controllers": "system:kube-controller-manager", "scheduler": "system:kube-scheduler", "proxy": "system:kube-proxy",
	} {
		group := ""
		if name == "admin" {
			group = "system:masters"
		}
		var err error
		if kubeconfigs[name], err = c.pki.Kubeconfig(name, c.server, user, group); err != nil {
			return err
		}
	}
	c.Client = Client{tools: c.processes.tools, kubeconfig: kubeconfigs["admin"], home: c.dir}
	c.proxyConfig = kubeconfigs["proxy"]
	etcd, err := startEtcd(&c.processes, "etcd", filepath.Join(c.dir, "etcd"), "127.0.0.1", etcdPort, "23800")
	if err != nil {
		return err
	}
	apiserver, err := startAPIServer(&c.processes, c.pki, apiServer{
		host: c.Host, port: apiPort, etcd: net.JoinHostPort("127.0.0.1", etcdPort),
		more: []string{"--enable-admission-plugins=NodeRestriction"},
	})
	if err != nil {
		return err
	}
	if err := await(ctx, "the API server is ready", func() error {
		_, err := c.Kubectl(ctx, "get", "--raw", "/readyz")
		return err
	}, etcd, apiserver); err != nil {
		return err
	}
	as := func(name string) []string {
		file := kubeconfigs[name]
		return []string{
			"--kubeconfig=" + file, "--authentication-kubeconfig=" + file, "--authorization-kubeconfig=" + file,
			"--leader-elect=false", "--bind-address=127.0.0.1",
		}
	}
	if _, err := c.processes.start("controllers", "kube-controller-manager", append(as("controllers"),
		"--service-account-private-key-file="+c.pki.File("accounts.key"), "--root-ca-file="+c.pki.File("ca.crt"),
		"--use-service-account-credentials=true")...); err != nil {
		return err
	}
	_, err = c.processes.start("scheduler", "kube-scheduler", as("scheduler")...)
	return err
}

// images are archives of the images that pods have, leaderd's last.
func (c *Cluster) images() ([]string, error) {
	pause, names := filepath.Join(c.dir, "pause.tar"), filepath.Join(c.dir, "coredns.tar")
	if err := writeImage(pause, pauseImage, c.processes.tools.Program("pause")); err != nil {
		return nil, err
	}
	if err := writeImage(names, nameImage, c.processes.tools.Program("coredns")); err != nil {
		return nil, err
	}
	return []string{pause, names, c.image}, nil
}

// volumes offers some, each a folder of a node, on which pods are placed that claim
// one.
func (c *Cluster) volumes(ctx context.Context) error {
	manifests := []string{`{apiVersion: storage.k8s.io/v1, kind: StorageClass,
  metadata: {name: local, annotations: {storageclass.kubernetes.io/is-default-class: "true"}},
  provisioner: kubernetes.io/no-provisioner, volumeBindingMode: WaitForFirstConsumer}`}
	for i := range 24 {
		node := c.Nodes[i%len(c.Nodes)].Name
		dir := filepath.Join(c.dir, "volumes", fmt.Sprint(i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		manifests = append(manifests, fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: local-%d}, spec: {
  capacity: {storage: 8Gi}, accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: Retain, storageClassName: local, local: {path: %s},
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}]}}}}`,
			i, dir, node))
	}
	return c.Apply(ctx, strings.Join(manifests, "\n---\n"))
}

// Tag gives an image that all nodes have a second name.
func (c *Cluster) Tag(image, name string) error {
	for _, n := range c.Nodes {
		if err := n.ctr("images", "tag", image, name); err != nil {
			return err
		}
	}
	return nil
}

// Run runs a command in the shell that a reader of the documentation has: with
// kubectl, helm and leaderd, in a folder.
func (c *Cluster) Run(ctx context.Context, dir, script string) (string, error) {
	return output(ctx, nil, c.Env(), "/bin/sh", "-ec", "cd "+dir+"\n"+script)
}

// AddHost has this process, and what it runs, find a name at an address.
func (c *Cluster) AddHost(name, address string) error {
	f, err := os.OpenFile("/etc/hosts", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s %s\n", address, name)
	return errors.Join(err, f.Close())
}

// Service starts a program beside the cluster, such as an etcd that it uses.
func (c *Cluster) Service(name, program string, args ...string) (*Service, error) {
	p, err := c.processes.start(name, program, args...)
	return &Service{p}, err
}

// Issue makes a certificate of the cluster's authority; answered are the paths of
// the authority's certificate, its own, and its key.
func (c *Cluster) Issue(name, commonName string, hosts ...string) (ca, cert, key string, err error) {
	err = c.pki.Issue(name, commonName, "", hosts...)
	return c.pki.File("ca.crt"), c.pki.File(name + ".crt"), c.pki.File(name + ".key"), err
}

// Stop ends the cluster's own programs; containers end with the process.
func (c *Cluster) Stop() { c.processes.stop() }

// Service is a program beside the cluster.
type Service struct{ p *process }

// Kill ends it at once.
func (s *Service) Kill() { s.p.kill() }

// Log is the end of what it said.
func (s *Service) Log() string { return s.p.tail() }
