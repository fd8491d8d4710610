package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
)

// API is a Kubernetes API server and its etcd, on loopback: objects are checked,
// admitted and kept, and nothing happens to them.
type API struct {
	Client
	processes processes
}

// StartAPI starts one with its data in dir, and waits until it serves.
func StartAPI(ctx context.Context, tools Tools, dir string) (*API, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	pki, err := NewAuthority(filepath.Join(dir, "pki"))
	if err != nil {
		return nil, err
	}
	a := &API{processes: processes{tools: tools, logs: filepath.Join(dir, "log")}}
	if err := a.start(ctx, pki, dir, ports); err != nil {
		a.Stop()
		return nil, err
	}
	return a, nil
}

func (a *API) start(ctx context.Context, pki *Authority, dir string, ports []string) error {
	const host = "127.0.0.1"
	server := net.JoinHostPort(host, ports[2])
	kubeconfig, err := pki.Kubeconfig("admin", "https://"+server, "admin", "system:masters")
	if err != nil {
		return err
	}
	a.Client = Client{tools: a.processes.tools, kubeconfig: kubeconfig, home: dir}
	etcd, err := startEtcd(&a.processes, "etcd", filepath.Join(dir, "etcd"), host, ports[0], ports[1])
	if err != nil {
		return err
	}
	apiserver, err := startAPIServer(&a.processes, pki, apiServer{
		host: host, port: ports[2], etcd: net.JoinHostPort(host, ports[0]),
		// Nobody makes service accounts, nor looks for the server.
		more: []string{"--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none"},
	})
	if err != nil {
		return err
	}
	return await(ctx, "the API server is ready", func() error {
		_, err := a.Kubectl(ctx, "get", "--raw", "/readyz")
		return err
	}, etcd, apiserver)
}

// Stop ends it.
func (a *API) Stop() { a.processes.stop() }

type apiServer struct {
	host, port, etcd string
	more             []string
}

// serviceNet are the addresses of services, apiService that of the API, dnsService
// that of names.
const (
	serviceNet = "198.18.32.0/24"
	apiService = "198.18.32.1"
	dnsService = "198.18.32.10"
)

func startAPIServer(p *processes, pki *Authority, s apiServer) (*process, error) {
	const service = "kubernetes.default.svc.cluster.local"
	if err := pki.Issue("apiserver", "kube-apiserver", "", s.host, "127.0.0.1", apiService, "localhost", "kubernetes.default.svc", service); err != nil {
		return nil, err
	}
	if err := pki.Issue("apiserver-kubelet", "kube-apiserver", "system:masters"); err != nil {
		return nil, err
	}
	args := append([]string{
		"--etcd-servers=http://" + s.etcd, "--bind-address=" + s.host, "--advertise-address=" + s.host, "--secure-port=" + s.port,
		"--service-cluster-ip-range=" + serviceNet,
		"--tls-cert-file=" + pki.File("apiserver.crt"), "--tls-private-key-file=" + pki.File("apiserver.key"),
		"--client-ca-file=" + pki.File("ca.crt"),
		"--kubelet-client-certificate=" + pki.File("apiserver-kubelet.crt"), "--kubelet-client-key=" + pki.File("apiserver-kubelet.key"),
		"--kubelet-certificate-authority=" + pki.File("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://" + service,
		"--service-account-key-file=" + pki.File("accounts.pub"), "--service-account-signing-key-file=" + pki.File("accounts.key"),
		"--authorization-mode=Node,RBAC", "--allow-privileged=true",
	}, s.more...)
	return p.start("apiserver", "kube-apiserver", args...)
}

// startEtcd starts an etcd of one member, whose data need not outlive the machine.
func startEtcd(p *processes, name, dir, host, client, peer string) (*process, error) {
	urlOf := func(port string) string { return "http://" + net.JoinHostPort(host, port) }
	return p.start(name, "etcd", "--name="+name, "--data-dir="+dir, "--unsafe-no-fsync",
		"--listen-client-urls="+urlOf(client), "--advertise-client-urls="+urlOf(client),
		"--listen-peer-urls="+urlOf(peer), "--initial-advertise-peer-urls="+urlOf(peer),
		fmt.Sprintf("--initial-cluster=%s=%s", name, urlOf(peer)), "--log-level=warn")
}

// freePorts are ports of loopback that were free a moment ago.
func freePorts(n int) (ports []string, err error) {
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			err = errors.Join(err, l.Close())
		}
	}()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, l)
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}
