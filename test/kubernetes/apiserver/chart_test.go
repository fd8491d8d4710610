package apiserver

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestEveryObjectIsTaken has the server check all that each of the examples makes,
// hooks included: fields, values, names, and how they fit together.
func TestEveryObjectIsTaken(t *testing.T) {
	for name, values := range cases(t) {
		t.Run(name, func(t *testing.T) {
			ns := namespace(t, "restricted")
			file := filepath.Join(t.TempDir(), "all.yaml")
			rendered := helm(t, "template", "jobs", chart, "--namespace", ns, "--values", values, "--kube-version", "1.37.2")
			require.NoError(t, os.WriteFile(file, []byte(rendered), 0o600))
			kubectl(t, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", file)
		})
	}
}

// TestLife installs each example, upgrades, rolls back and removes it.
func TestLife(t *testing.T) {
	for name, values := range cases(t) {
		t.Run(name, func(t *testing.T) {
			ns := namespace(t, "restricted")
			in := []string{"--namespace", ns, "--values", values, "--no-hooks"}
			helm(t, append([]string{"install", "jobs", chart}, in...)...)
			set := statefulSet(t, ns)
			require.EqualValues(t, 1, set.Generation)

			helm(t, append([]string{"upgrade", "jobs", chart, "--set", "image.tag=next,control.capacity=7,image.digest="}, in...)...)
			upgraded := statefulSet(t, ns)
			require.EqualValues(t, 2, upgraded.Generation)
			require.Contains(t, upgraded.Spec.Template.Spec.Containers[0].Image, ":next")
			require.NotEqual(t, set.Spec.Template.Annotations["checksum/config"], upgraded.Spec.Template.Annotations["checksum/config"],
				"a change of settings restarts the pods")

			helm(t, "rollback", "jobs", "1", "--namespace", ns, "--no-hooks")
			back := statefulSet(t, ns)
			require.Equal(t, set.Spec.Template, back.Spec.Template)

			var history []struct{ Status, Description string }
			require.NoError(t, json.Unmarshal([]byte(helm(t, "history", "jobs", "--namespace", ns, "--output", "json")), &history))
			require.Len(t, history, 3)
			require.Equal(t, "deployed", history[2].Status)

			helm(t, "uninstall", "jobs", "--namespace", ns, "--no-hooks")
			require.Empty(t, kubectl(t, "get", "statefulsets,deployments,services,configmaps,networkpolicies,poddisruptionbudgets,serviceaccounts",
				"--namespace", ns, "--selector", "app.kubernetes.io/instance=jobs", "--output", "name"))
		})
	}
}

// TestShapeStays: what neither Kubernetes nor etcd could change is refused in words
// that help, and nothing has changed then.
func TestShapeStays(t *testing.T) {
	ns := namespace(t, "restricted")
	helm(t, "install", "jobs", chart, "--namespace", ns)
	for _, change := range []string{"control.replicas=1", "etcd.mode=external,etcd.endpoints={http://etcd:2379}", "etcd.embedded.tls=true,tls.enabled=true,tls.existingSecret=a"} {
		said := refused(t, "upgrade", "jobs", chart, "--namespace", ns, "--set", change)
		require.Contains(t, said, "etcd.mode, control.replicas, etcd.embedded.tls: this release is embedded-3 and cannot become")
	}
	require.EqualValues(t, 1, statefulSet(t, ns).Generation)
	helm(t, "upgrade", "jobs", chart, "--namespace", ns, "--set", "executor.enabled=true")
	require.EqualValues(t, 1, statefulSet(t, ns).Generation, "executors are none of the control pods' business")
}

// TestServerFindsMistakes: what only the server can know ends an upgrade, and the
// release goes back to what it was.
func TestServerFindsMistakes(t *testing.T) {
	ns := namespace(t, "baseline")
	helm(t, "install", "jobs", chart, "--namespace", ns)
	said := refused(t, "upgrade", "jobs", chart, "--namespace", ns, "--rollback-on-failure", "--timeout", "20s",
		"--set", "control.podSpec.restartPolicy=Never")
	require.Contains(t, said, "restartPolicy")
	require.Equal(t, corev1.RestartPolicyAlways, statefulSet(t, ns).Spec.Template.Spec.RestartPolicy)

	said = refused(t, "upgrade", "jobs", chart, "--namespace", ns, "--set", "control.podSpec.dnsPolice=None")
	require.Contains(t, said, "dnsPolice")
}

// TestPodSecurity: a namespace that enforces the strictest level takes the pods of
// each example, and refuses those whose values give up what it demands.
func TestPodSecurity(t *testing.T) {
	for name, values := range cases(t) {
		t.Run(name, func(t *testing.T) {
			ns := namespace(t, "restricted")
			helm(t, "install", "jobs", chart, "--namespace", ns, "--values", values, "--no-hooks")
			admitted(t, ns, podOf(statefulSet(t, ns)))
			var executors appsv1.DeploymentList
			require.NoError(t, api.Get(t.Context(), &executors, "deployments", "--namespace", ns))
			for _, d := range executors.Items {
				admitted(t, ns, d.Spec.Template)
			}
		})
	}
	ns := namespace(t, "restricted")
	helm(t, "install", "jobs", chart, "--namespace", ns, "--no-hooks", "--set", "securityContext.allowPrivilegeEscalation=true")
	err := admit(t, ns, podOf(statefulSet(t, ns)))
	require.ErrorContains(t, err, "violates PodSecurity")
	require.ErrorContains(t, err, "allowPrivilegeEscalation")
}

func admitted(t *testing.T, ns string, template corev1.PodTemplateSpec) {
	t.Helper()
	require.NoError(t, admit(t, ns, template))
}

// podOf is the template of a StatefulSet's pods with what its controller adds: the
// volumes that are claimed.
func podOf(set appsv1.StatefulSet) corev1.PodTemplateSpec {
	template := set.Spec.Template
	for _, claim := range set.Spec.VolumeClaimTemplates {
		template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + set.Name + "-0"},
		}})
	}
	return template
}

// admit has the server judge a pod of a template as if it were made.
func admit(t *testing.T, ns string, template corev1.PodTemplateSpec) error {
	t.Helper()
	pod := corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: template.ObjectMeta, Spec: template.Spec,
	}
	pod.Name = "judged"
	content, err := json.Marshal(pod)
	require.NoError(t, err)
	return api.Apply(t.Context(), string(content), "--dry-run=server", "--namespace", ns)
}

// statefulSet is the one of control pods, whatever it is called.
func statefulSet(t *testing.T, ns string) appsv1.StatefulSet {
	t.Helper()
	var all appsv1.StatefulSetList
	require.NoError(t, api.Get(t.Context(), &all, "statefulsets", "--namespace", ns))
	require.Len(t, all.Items, 1)
	return all.Items[0]
}
