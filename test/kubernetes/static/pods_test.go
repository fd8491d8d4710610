package static

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// pod is a pod that the chart makes, by whatever object.
type pod struct {
	meta metav1.ObjectMeta
	spec corev1.PodSpec
}

// pods are all pods that a render leads to, by kind and name.
func pods(t *testing.T, all objects) map[string]pod {
	t.Helper()
	found := map[string]pod{}
	for _, object := range all {
		name, ok := at(object, "metadata", "name").(string)
		require.True(t, ok)
		switch object["kind"] {
		case "StatefulSet":
			o := find[appsv1.StatefulSet](t, all, "StatefulSet", name)
			found["StatefulSet/"+name] = pod{o.Spec.Template.ObjectMeta, o.Spec.Template.Spec}
		case "Deployment":
			o := find[appsv1.Deployment](t, all, "Deployment", name)
			found["Deployment/"+name] = pod{o.Spec.Template.ObjectMeta, o.Spec.Template.Spec}
		case "Job":
			o := find[batchv1.Job](t, all, "Job", name)
			found["Job/"+name] = pod{o.Spec.Template.ObjectMeta, o.Spec.Template.Spec}
		case "Pod":
			o := find[corev1.Pod](t, all, "Pod", name)
			found["Pod/"+name] = pod{o.ObjectMeta, o.Spec}
		}
	}
	return found
}

// TestPodsAreRestricted has Kubernetes' own rules judge every pod: a namespace that
// enforces the level restricted takes them, whatever values are set here.
func TestPodsAreRestricted(t *testing.T) {
	judge, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	require.NoError(t, err)
	level := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	for name, file := range cases(t) {
		t.Run(name, func(t *testing.T) {
			made := pods(t, render(t, "--values", file))
			require.NotEmpty(t, made)
			for name, p := range made {
				for _, result := range judge.EvaluatePod(level, &p.meta, &p.spec) {
					require.True(t, result.Allowed, "%s: %s: %s", name, result.ForbiddenReason, result.ForbiddenDetail)
				}
			}
		})
	}
}

func TestPodsHaveNoRights(t *testing.T) {
	for name, file := range cases(t) {
		t.Run(name, func(t *testing.T) {
			all := render(t, "--values", file)
			for name, p := range pods(t, all) {
				require.NotNil(t, p.spec.AutomountServiceAccountToken, name)
				require.False(t, *p.spec.AutomountServiceAccountToken, name)
				require.NotNil(t, p.spec.EnableServiceLinks, name)
				require.False(t, *p.spec.EnableServiceLinks, name)
				for _, c := range p.spec.Containers {
					if c.Name != "side" {
						require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, name)
					}
				}
			}
			for _, object := range all {
				require.NotContains(t, object["apiVersion"], "rbac", "nothing asks the Kubernetes API")
			}
		})
	}
}

// TestGrace: Kubernetes kills a pod only after its sleep, its drain, and the time
// that the end of a node may take.
func TestGrace(t *testing.T) {
	for name, c := range map[string]struct {
		args              []string
		control, executor int64
	}{
		"defaults": {nil, 5 + 30 + 30, 30 + 30},
		"longer":   {[]string{"--set", "control.drainGraceSeconds=100,control.preStopSleepSeconds=7,executor.drainGraceSeconds=600"}, 137, 630},
		"given":    {[]string{"--set", "control.terminationGracePeriodSeconds=900,executor.terminationGracePeriodSeconds=901"}, 900, 901},
	} {
		t.Run(name, func(t *testing.T) {
			all := pods(t, render(t, append(c.args, "--set", "executor.enabled=true")...))
			require.Equal(t, c.control, *all["StatefulSet/jobs-leaderd"].spec.TerminationGracePeriodSeconds)
			require.Equal(t, c.executor, *all["Deployment/jobs-leaderd-executor"].spec.TerminationGracePeriodSeconds)
		})
	}
	control := pods(t, render(t))["StatefulSet/jobs-leaderd"].spec.Containers[0]
	require.Equal(t, int64(5), control.Lifecycle.PreStop.Sleep.Seconds)
	control = pods(t, render(t, "--set", "control.preStopSleepSeconds=0"))["StatefulSet/jobs-leaderd"].spec.Containers[0]
	require.Nil(t, control.Lifecycle, "older versions refuse a sleep of nothing")
}

// TestProbes: etcd's state must not restart anything.
func TestProbes(t *testing.T) {
	for _, p := range pods(t, render(t, "--set", "executor.enabled=true,tests.enabled=false")) {
		c := p.spec.Containers[0]
		require.Equal(t, "/livez", c.LivenessProbe.HTTPGet.Path)
		require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path)
		require.Nil(t, c.StartupProbe)
	}
	over := pods(t, render(t, "--set", "control.readinessProbe.failureThreshold=9"))["StatefulSet/jobs-leaderd"].spec.Containers[0].ReadinessProbe
	require.Equal(t, int32(9), over.FailureThreshold)
	require.Equal(t, int32(5), over.PeriodSeconds)
}

// TestSelectorsNeverChange: what helm upgrade could not change has no version in
// it, whatever values are set.
func TestSelectorsNeverChange(t *testing.T) {
	for name, file := range cases(t) {
		t.Run(name, func(t *testing.T) {
			all := render(t, "--values", file, "--set", "fullnameOverride=x")
			set := find[appsv1.StatefulSet](t, all, "StatefulSet", "x")
			want := map[string]string{
				"app.kubernetes.io/name": "leaderd", "app.kubernetes.io/instance": release, "app.kubernetes.io/component": "control",
			}
			require.Equal(t, want, set.Spec.Selector.MatchLabels)
			for _, claim := range set.Spec.VolumeClaimTemplates {
				require.Len(t, claim.Labels, 2)
			}
			require.Equal(t, appsv1.ParallelPodManagement, set.Spec.PodManagementPolicy)
			require.Equal(t, "x-headless", set.Spec.ServiceName)
			require.True(t, find[corev1.Service](t, all, "Service", "x-headless").Spec.PublishNotReadyAddresses)
		})
	}
}

func TestDisruptionBudgets(t *testing.T) {
	require.False(t, render(t, "--set", "control.replicas=1").has("PodDisruptionBudget", "jobs-leaderd-control"), "it would only stop drains")
	require.False(t, render(t, "--set", "control.pdb.enabled=false").has("PodDisruptionBudget", "jobs-leaderd-control"))
	all := render(t, "--set", "executor.enabled=true,executor.replicas=1")
	require.True(t, all.has("PodDisruptionBudget", "jobs-leaderd-control"))
	require.False(t, all.has("PodDisruptionBudget", "jobs-leaderd-executor"))
	require.True(t, render(t, "--set", "executor.enabled=true").has("PodDisruptionBudget", "jobs-leaderd-executor"))
}

// TestWhoReachesWhat follows the selectors of services and policies to the pods.
func TestWhoReachesWhat(t *testing.T) {
	all := render(t, "--set", "executor.enabled=true,metrics.serviceMonitor.enabled=true,jobs[0].name=a,jobs[0].spec.noop.x=1")
	made := pods(t, all)
	of := func(selector map[string]string) []string {
		var out []string
		for name, p := range made {
			if labels.SelectorFromSet(selector).Matches(labels.Set(p.meta.Labels)) {
				out = append(out, name)
			}
		}
		return out
	}
	const control, executor = "StatefulSet/jobs-leaderd", "Deployment/jobs-leaderd-executor"
	const hook, test = "Job/jobs-leaderd-apply-jobs", "Pod/jobs-leaderd-test-status"
	for service, want := range map[string][]string{
		"jobs-leaderd": {control}, "jobs-leaderd-headless": {control}, "jobs-leaderd-metrics": {control, executor},
	} {
		require.ElementsMatch(t, want, of(find[corev1.Service](t, all, "Service", service).Spec.Selector), service)
	}

	policy := find[networkingv1.NetworkPolicy](t, all, "NetworkPolicy", "jobs-leaderd-control")
	require.ElementsMatch(t, []string{control}, of(policy.Spec.PodSelector.MatchLabels))
	from := map[string][]string{}
	for _, rule := range policy.Spec.Ingress {
		port := rule.Ports[0].Port.String()
		from[port] = []string{}
		for _, peer := range rule.From {
			from[port] = append(from[port], of(peer.PodSelector.MatchLabels)...)
		}
	}
	require.Len(t, from, 3)
	require.ElementsMatch(t, []string{control, executor, hook, test}, from["grpc"])
	require.ElementsMatch(t, []string{control}, from["etcd-peer"], "whoever reaches a peer owns the cluster")
	require.Empty(t, from["ops"], "kubelets and Prometheus, from anywhere")
	executors := find[networkingv1.NetworkPolicy](t, all, "NetworkPolicy", "jobs-leaderd-executor")
	require.Len(t, executors.Spec.Ingress, 1, "executors have no gRPC listener")

	external := render(t, "--set", "etcd.mode=external,etcd.endpoints={etcd:2379}")
	require.Len(t, find[networkingv1.NetworkPolicy](t, external, "NetworkPolicy", "jobs-leaderd-control").Spec.Ingress, 2)
}

func TestImages(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, c := range []struct {
		want string
		args []string
	}{
		{"leaderd/leaderd:0.1.0", nil},
		{"r.example.com:5000/leaderd/leaderd:v7", []string{"--set", "image.registry=r.example.com:5000/,image.tag=v7"}},
		{"r.example.com/a/b@" + digest, []string{"--set", "image.registry=r.example.com,image.repository=a/b,image.tag=v7,image.digest=" + digest}},
	} {
		for name, p := range pods(t, render(t, c.args...)) {
			require.Equal(t, c.want, p.spec.Containers[0].Image, name)
		}
	}
	own := pods(t, render(t, "--set", "executor.enabled=true,image.tag=v7,executor.image.repository=mine/tools"))
	require.Equal(t, "mine/tools:v7", own["Deployment/jobs-leaderd-executor"].spec.Containers[0].Image)
	require.Equal(t, "leaderd/leaderd:v7", own["StatefulSet/jobs-leaderd"].spec.Containers[0].Image)
	own = pods(t, render(t, "--set", "executor.enabled=true,executor.image.tag=v8,image.digest="+digest))
	require.Equal(t, "leaderd/leaderd:v8", own["Deployment/jobs-leaderd-executor"].spec.Containers[0].Image, "the digest is another image's")
	own = pods(t, render(t, "--set", "executor.enabled=true,image.digest="+digest))
	require.Equal(t, "leaderd/leaderd@"+digest, own["Deployment/jobs-leaderd-executor"].spec.Containers[0].Image)
}

// TestMemoryLimit: the Go runtime knows of a limit on memory before the kernel
// enforces it.
func TestMemoryLimit(t *testing.T) {
	for limit, want := range map[string]string{"512Mi": "435MiB", "2Gi": "1740MiB", "1.5Gi": "", "1G": ""} {
		env := environment(t, pods(t, render(t, "--set", "control.resources.limits.memory="+limit))["StatefulSet/jobs-leaderd"])
		require.Equal(t, want, env["GOMEMLIMIT"], limit)
	}
	env := environment(t, pods(t, render(t, "--set", "control.resources.limits.memory=1Gi,control.extraEnv[0].name=GOMEMLIMIT,control.extraEnv[0].value=1MiB"))["StatefulSet/jobs-leaderd"])
	require.Equal(t, "1MiB", env["GOMEMLIMIT"])
}

// TestConfigurationRolls: a change of a setting restarts the nodes that it is for,
// and no others.
func TestConfigurationRolls(t *testing.T) {
	sums := func(args ...string) (control, executor string) {
		all := pods(t, render(t, append(args, "--set", "executor.enabled=true")...))
		return all["StatefulSet/jobs-leaderd"].meta.Annotations["checksum/config"], all["Deployment/jobs-leaderd-executor"].meta.Annotations["checksum/config"]
	}
	control, executor := sums()
	both, all := sums("--set", "config.election.ttl=7s")
	require.NotEqual(t, control, both)
	require.NotEqual(t, executor, all)
	same, other := sums("--set", "executor.capacity=7")
	require.Equal(t, control, same)
	require.NotEqual(t, executor, other)
	other, same = sums("--set", "etcd.prefix=/other/")
	require.NotEqual(t, control, other)
	require.Equal(t, executor, same)
	for name, p := range pods(t, render(t, "--set", "executor.enabled=true,tests.enabled=false")) {
		require.NotContains(t, p.meta.Labels, "helm.sh/chart", "%s: a new version of the chart alone", name)
	}
}

// environment is a pod's environment as its node finds it, as far as it is
// known before it runs.
func environment(t *testing.T, p pod) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, e := range p.spec.Containers[0].Env {
		switch {
		case e.ValueFrom == nil:
			env[e.Name] = e.Value
		case e.ValueFrom.FieldRef != nil:
			require.Equal(t, "metadata.name", e.ValueFrom.FieldRef.FieldPath)
			env[e.Name] = "POD"
		case e.ValueFrom.SecretKeyRef != nil:
			env[e.Name] = "SECRET"
		}
	}
	return env
}

// TestJobsAreKept: what templates and YAML like to break arrives as it was written.
func TestJobsAreKept(t *testing.T) {
	file := cases(t)["jobs"]
	kept := find[corev1.ConfigMap](t, render(t, "--values", file), "ConfigMap", "jobs-leaderd-jobs")
	require.Equal(t, []string{"jobs.yaml"}, keys(kept.Data))
	var have, want any
	require.NoError(t, yaml.UnmarshalStrict([]byte(kept.Data["jobs.yaml"]), &have))
	var values map[string]any
	require.NoError(t, yaml.UnmarshalStrict(content(t, file), &values))
	want = values["jobs"]
	require.Equal(t, want, have)
	require.False(t, render(t).has("ConfigMap", "jobs-leaderd-jobs"))
}

func keys(m map[string]string) []string {
	var out []string
	for key := range maps.Keys(m) {
		out = append(out, key)
	}
	return out
}
