package pods

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/leaderd/leaderd/test/kubernetes/cluster"
)

// jobCount jobs start every second.
const jobCount = 200

// How late a slot may start that falls due while something happens, on a machine that
// has time for it. One that is busy starts everything late; so what it did just before
// widens the limit, see allowed.
const (
	// killedLate: a quarter of a second is promised; here the pods, the whole of
	// Kubernetes, etcd and the tests share a machine, and pods begin at the same time.
	killedLate   = 750 * time.Millisecond
	upgradedLate = time.Second
)

// outside is an etcd of three members outside of Kubernetes, which speaks TLS and
// demands certificates.
type outside struct {
	t       *testing.T
	args    [3][]string
	members [3]*cluster.Service
	urls    []string
}

func startOutside(t *testing.T) *outside {
	t.Helper()
	ca, cert, key, err := kube.Issue("etcd", "etcd", kube.Host)
	require.NoError(t, err)
	o := &outside{t: t}
	urlOf := func(port int) string { return "https://" + net.JoinHostPort(kube.Host, fmt.Sprint(port)) }
	var members []string
	for i := range 3 {
		members = append(members, fmt.Sprintf("m%d=%s", i, urlOf(24800+i)))
	}
	for i := range 3 {
		client, peer := urlOf(24790+i), urlOf(24800+i)
		o.urls = append(o.urls, client)
		o.args[i] = []string{
			fmt.Sprintf("--name=m%d", i), "--data-dir=" + filepath.Join(kube.Dir, fmt.Sprintf("etcd%d", i)), "--log-level=warn",
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=" + strings.Join(members, ","),
			"--client-cert-auth", "--trusted-ca-file=" + ca, "--cert-file=" + cert, "--key-file=" + key,
			"--peer-client-cert-auth", "--peer-trusted-ca-file=" + ca, "--peer-cert-file=" + cert, "--peer-key-file=" + key,
			"--auto-compaction-mode=periodic", "--auto-compaction-retention=5m",
		}
	}
	o.start()
	return o
}

func (o *outside) start() {
	for i, args := range o.args {
		var err error
		o.members[i], err = kube.Service(fmt.Sprintf("etcd-m%d", i), "etcd", args...)
		require.NoError(o.t, err)
	}
}

func (o *outside) kill() {
	for _, m := range o.members {
		m.Kill()
	}
}

// release is the release that the tests of an external etcd break.
type release struct {
	client

	namespace string
	dir       string // of a checkout, with the release's values.yaml
	etcd      *outside
	recorder  *recorder
}

// install installs the production example of the documentation, near enough, with
// 200 jobs.
func install(t *testing.T, namespace string, executors int) *release {
	t.Helper()
	restricted(t, namespace)
	r := &release{namespace: namespace, etcd: startOutside(t), recorder: record(t)}
	secret := func(name, ca, cert, key string) {
		kubectl(t, "create", "secret", "generic", name, "--namespace", namespace,
			"--from-file=ca.crt="+ca, "--from-file=tls.crt="+cert, "--from-file=tls.key="+key)
	}
	ca, cert, key, err := kube.Issue("leaderd-etcd", "leaderd")
	require.NoError(t, err)
	secret("leaderd-etcd-tls", ca, cert, key)
	service := "leaderd." + namespace + ".svc.cluster.local"
	ca, cert, key, err = kube.Issue("leaderd", "leaderd", "*.leaderd-headless."+namespace+".svc.cluster.local", service, "localhost", "127.0.0.1")
	require.NoError(t, err)
	secret("leaderd-tls", ca, cert, key)
	r.dir = checkout(t, map[string]string{
		"values.yaml": fmt.Sprintf(`
image: {registry: %s, tag: %s}
etcd:
  mode: external
  endpoints: ["%s"]
  tls: {existingSecret: leaderd-etcd-tls}
tls: {enabled: true, existingSecret: leaderd-tls}
control: {executor: false, minReadySeconds: 5}
executor: {enabled: true, replicas: %d}
networkPolicy: {clientsFrom: [{ipBlock: {cidr: "%s/32"}}]} # this test, which is no pod
jobs:
  - {name: from-values, spec: {schedules: ["@every 1m"], noop: {}}}
`, registry, tag, strings.Join(r.etcd.urls, `", "`), executors, kube.Host),
		"jobs.yaml": r.recorder.jobs(jobCount),
	})
	begun := time.Now()
	helm(t, "install", "leaderd", filepath.Join(r.dir, "deploy/helm/leaderd"), "--namespace", namespace,
		"--values", filepath.Join(r.dir, "values.yaml"), "--wait", "--timeout", "150s")
	t.Logf("three control pods and %d executor pods are installed after %s", executors, time.Since(begun).Round(100*time.Millisecond))
	var svc corev1.Service
	require.NoError(t, kube.Get(t.Context(), &svc, "service", "leaderd", "--namespace", namespace))
	require.NoError(t, kube.AddHost(service, svc.Spec.ClusterIP))
	r.client = client{t: t, env: fmt.Sprintf("LEADERD_ADDRESS=%s:7400 LEADERD_TLS_CA_FILE=%s LEADERD_TLS_CERT_FILE=%s LEADERD_TLS_KEY_FILE=%s",
		service, ca, cert, key)}
	return r
}

// upgrade runs Helm with the release's values and more.
func (r *release) upgrade(more ...string) error {
	_, err := kube.Helm(r.t.Context(), append([]string{
		"upgrade", "leaderd", filepath.Join(r.dir, "deploy/helm/leaderd"), "--namespace", r.namespace,
		"--values", filepath.Join(r.dir, "values.yaml"), "--wait", "--timeout", "240s",
	}, more...)...)
	return err
}

// settled is a moment from which on every second counts.
func settled() time.Time { return time.Now().Truncate(time.Second).Add(2 * time.Second) }

// through does something while the jobs go on, waits until all up to some seconds
// later is decided, and judges that time, and the quiet time just before.
func (r *release) through(what string, do func()) (quiet, found judged) {
	r.t.Helper()
	from := settled()
	begin := from.Add(4 * time.Second)
	time.Sleep(time.Until(begin))
	do()
	to := time.Now().Truncate(time.Second).Add(4 * time.Second)
	r.decided(to)
	quiet = r.recorder.judge(jobCount, from, begin.Add(-time.Second))
	found = r.recorder.judge(jobCount, begin.Add(-time.Second), to)
	r.t.Logf("%s (%s): %s\nbefore: %s", what, to.Sub(begin), found, quiet)
	return quiet, found
}

// allowed is a limit of lateness on a machine that was so late with quiet jobs.
func allowed(limit time.Duration, quiet judged) time.Duration {
	return max(limit, 4*quiet.worst)
}

// TestExternalEtcd runs a release with an etcd of its own and breaks it in turn.
func TestExternalEtcd(t *testing.T) {
	if *nodes > 1 {
		t.Skip("a drain is meant to find no other machine")
	}
	r := install(t, "external", 2)
	require.Contains(t, r.must("job list"), "from-values", "the hook has applied it")
	require.Contains(t, helm(t, "test", "leaderd", "--namespace", r.namespace, "--logs"), "Succeeded")
	r.leader()
	r.must("job apply -f " + filepath.Join(r.dir, "jobs.yaml"))
	from := settled().Add(2 * time.Second)
	r.decided(from.Add(3 * time.Second))
	t.Logf("quiet: %s", r.recorder.judge(jobCount, from, from.Add(3*time.Second)))
	for _, step := range []struct {
		name string
		run  func(*testing.T, *release)
	}{
		{"the leader's pod is killed", killLeader},
		{"policies", policies},
		{"a broken image", brokenImage},
		{"rolling upgrade", rollingUpgrade},
		{"drain", drain},
		{"loss of etcd", lossOfEtcd},
		{"history", judgeAll},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			now := *r
			now.t, now.recorder.t = t, t
			step.run(t, &now)
		}) {
			return // what follows would fail for the same reason
		}
	}
}

func killLeader(t *testing.T, r *release) {
	leader := r.leader()
	quiet, found := r.through("the leader's pod is killed", func() {
		kubectl(t, "delete", "pod", leader, "--namespace", r.namespace, "--force", "--grace-period=0")
		killed := time.Now()
		t.Logf("%s leads, after %s", r.leader(leader), time.Since(killed).Round(time.Millisecond))
	})
	require.LessOrEqual(t, found.worst, allowed(killedLate, quiet))
	awaitReady(t, r.namespace, controls, 3)
}

// rollingUpgrade replaces every pod while 200 jobs start each second.
func rollingUpgrade(t *testing.T, r *release) {
	before := pods(t, r.namespace, ours)
	quiet, found := r.through("rolling upgrade", func() { require.NoError(t, r.upgrade("--set", "image.tag="+next)) })
	require.LessOrEqual(t, found.worst, allowed(upgradedLate, quiet))
	old := map[string]bool{}
	for _, p := range before {
		old[string(p.UID)] = true
	}
	awaitReady(t, r.namespace, ours, 5)
	for _, p := range pods(t, r.namespace, ours) {
		require.False(t, old[string(p.UID)], "%s was not replaced", p.Name)
		require.Equal(t, image+":"+next, p.Spec.Containers[0].Image)
	}
}

// brokenImage upgrades to an image that there is not: Helm goes back, and the jobs
// have noticed nothing.
func brokenImage(t *testing.T, r *release) {
	before := helm(t, "get", "values", "leaderd", "--namespace", r.namespace)
	r.through("an image that there is not", func() {
		require.Error(t, r.upgrade("--set", "image.tag=missing,image.pullPolicy=Never", "--rollback-on-failure", "--timeout", "25s"))
	})
	require.Equal(t, before, helm(t, "get", "values", "leaderd", "--namespace", r.namespace))
	awaitReady(t, r.namespace, ours, 5)
	for _, p := range pods(t, r.namespace, ours) {
		require.Equal(t, image+":"+tag, p.Spec.Containers[0].Image)
	}
}

// drain drains the only machine, so that nothing that was evicted comes up again:
// of each kind of pods one goes, and the budget keeps the others.
func drain(t *testing.T, r *release) {
	var said error
	r.through("drain", func() {
		_, said = kube.Kubectl(t.Context(), "drain", "node0", "--ignore-daemonsets", "--delete-emptydir-data",
			"--pod-selector", ours, "--timeout", "12s")
		left := map[string]int{}
		for _, p := range pods(t, r.namespace, ours) {
			if isReady(p) {
				left[p.Labels["app.kubernetes.io/component"]]++
			}
		}
		require.Equal(t, map[string]int{"control": 2, "executor": 1}, left)
		kubectl(t, "uncordon", "node0")
	})
	require.ErrorContains(t, said, "violate the pod's disruption budget")
	awaitReady(t, r.namespace, ours, 5)
	var budgets policyv1.PodDisruptionBudgetList
	require.NoError(t, kube.Get(t.Context(), &budgets, "poddisruptionbudgets", "--namespace", r.namespace))
	require.Len(t, budgets.Items, 2)
}

// lossOfEtcd takes etcd away until no control pod is ready any more: none is
// restarted for it, and all is well when etcd is back.
func lossOfEtcd(t *testing.T, r *release) {
	before := pods(t, r.namespace, ours)
	r.etcd.kill()
	lost := time.Now()
	await(t, "no control pod is ready", func() error {
		for _, p := range pods(t, r.namespace, controls) {
			if isReady(p) {
				return fmt.Errorf("%s is", p.Name)
			}
		}
		return nil
	})
	t.Logf("no control pod is ready %s after the loss of etcd", time.Since(lost).Round(time.Second))
	// Liveness would have had its time to fail: three times in ten seconds.
	time.Sleep(time.Until(lost.Add(45 * time.Second)))
	require.Equal(t, restarts(before), restarts(pods(t, r.namespace, ours)), "liveness does not hang on etcd")
	r.etcd.start()
	back := time.Now()
	awaitReady(t, r.namespace, ours, 5)
	t.Logf("all pods are ready %s after etcd is back", time.Since(back).Round(time.Second))
	r.decided(time.Now())
	from := settled().Add(3 * time.Second)
	r.decided(from.Add(3 * time.Second))
	t.Logf("after the loss of etcd: %s", r.recorder.judge(jobCount, from, from.Add(3*time.Second)))
}

// judgeAll has leaderd's own checker judge all that there was.
func judgeAll(t *testing.T, r *release) {
	r.recorder.neverTwice()
	out := r.must("verify --since 1h")
	t.Log(out)
}

// client pods: whoever has the label reaches the API, others do not.
func policies(t *testing.T, r *release) {
	run := func(name, labels string) error {
		overrides := fmt.Sprintf(`{"spec": {"securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
			"containers": [{"name": "client", "image": "%s:%s", "imagePullPolicy": "Never", "args": ["cluster", "status", "--timeout", "5s", "--wait", "15s"],
				"env": [{"name": "LEADERD_ADDRESS", "value": "leaderd:7400"},
					{"name": "LEADERD_TLS_CA_FILE", "value": "/tls/ca.crt"}, {"name": "LEADERD_TLS_CERT_FILE", "value": "/tls/tls.crt"}, {"name": "LEADERD_TLS_KEY_FILE", "value": "/tls/tls.key"}],
				"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
				"volumeMounts": [{"name": "tls", "mountPath": "/tls"}]}],
			"volumes": [{"name": "tls", "secret": {"secretName": "leaderd-tls"}}]}}`, image, tag)
		overrides = strings.ReplaceAll(overrides, "leaderd:7400", "leaderd."+r.namespace+".svc.cluster.local:7400")
		kubectl(t, "run", name, "--namespace", r.namespace, "--restart", "Never", "--image", image+":"+tag, "--labels", labels, "--overrides", overrides)
		var phase string
		await(t, name+" has ended", func() error {
			phase = kubectl(t, "get", "pod", name, "--namespace", r.namespace, "-o", "jsonpath={.status.phase}")
			if phase != "Succeeded" && phase != "Failed" {
				return fmt.Errorf("it is %s", phase)
			}
			return nil
		})
		said := kubectl(t, "logs", name, "--namespace", r.namespace)
		kubectl(t, "delete", "pod", name, "--namespace", r.namespace, "--now")
		if phase == "Failed" {
			return fmt.Errorf("%s: %s", name, said)
		}
		return nil
	}
	require.NoError(t, run("allowed", "leaderd-client=true"))
	err := run("denied", "app=other")
	require.Error(t, err)
	t.Log(err)
}
