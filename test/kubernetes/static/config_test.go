package static

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/leaderd/leaderd/internal/config"
)

// TestLeaderdTakesTheConfiguration has leaderd itself read what the chart gives
// the pods.
func TestLeaderdTakesTheConfiguration(t *testing.T) {
	for name, file := range cases(t) {
		t.Run(name, func(t *testing.T) {
			all := render(t, "--values", file)
			for name, p := range pods(t, all) {
				switch kind, base, _ := strings.Cut(name, "/"); kind {
				case "StatefulSet":
					for _, pod := range []string{base + "-0", base + "-1", base + "-2"} {
						cfg := load(t, all, base+"-control", pod, p)
						require.True(t, cfg.Control())
						require.True(t, strings.HasPrefix(cfg.Advertise, pod+"."+base+"-headless."+namespace+".svc."), cfg.Advertise)
						if len(cfg.Etcd.Embedded.InitialCluster) == 1 {
							break // there are no others
						}
					}
				case "Deployment":
					cfg := load(t, all, base, base+"-7d4b9-x2x2x", p)
					require.False(t, cfg.Control())
					require.True(t, cfg.Executes())
					require.NotEmpty(t, cfg.ControlAddresses)
				}
			}
		})
	}
}

// load reads the configuration that a pod with a name would have.
func load(t *testing.T, all objects, configMap, name string, p pod) config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "leaderd.yaml")
	content := find[corev1.ConfigMap](t, all, "ConfigMap", configMap).Data["leaderd.yaml"]
	write(t, file, []byte(content))
	env := environment(t, p)
	require.Equal(t, "/etc/leaderd/config/leaderd.yaml", env["LEADERD_CONFIG"])
	env["LEADERD_CONFIG"] = file
	env["LEADERD_NAME"] = name
	var environ []string
	for key, value := range env {
		environ = append(environ, key+"="+strings.ReplaceAll(value, "$(LEADERD_NAME)", name))
	}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	config.Register(flags)
	require.Equal(t, "serve", p.spec.Containers[0].Args[0])
	require.NoError(t, flags.Parse(p.spec.Containers[0].Args[1:]))
	cfg, err := config.Load(flags, environ)
	require.NoError(t, err)
	require.Equal(t, name, cfg.Name)
	return cfg
}

func TestConfiguration(t *testing.T) {
	all := render(t)
	control := load(t, all, "jobs-leaderd-control", "jobs-leaderd-1", pods(t, all)["StatefulSet/jobs-leaderd"])
	require.Equal(t, []string{
		"jobs-leaderd-0=http://jobs-leaderd-0.jobs-leaderd-headless.batch.svc.cluster.local:7403",
		"jobs-leaderd-1=http://jobs-leaderd-1.jobs-leaderd-headless.batch.svc.cluster.local:7403",
		"jobs-leaderd-2=http://jobs-leaderd-2.jobs-leaderd-headless.batch.svc.cluster.local:7403",
	}, control.Etcd.Embedded.InitialCluster)
	require.Equal(t, "jobs-leaderd-1.jobs-leaderd-headless.batch.svc.cluster.local:7400", control.Advertise)
	require.Equal(t, "127.0.0.1:7402", control.Etcd.Embedded.ClientListen, "nobody else may ask etcd")
	require.Equal(t, "batch/jobs-leaderd", control.Etcd.Embedded.InitialClusterToken)
	require.True(t, control.Executes())

	all = render(t, "--values", cases(t)["external"])
	made := pods(t, all)
	control = load(t, all, "jobs-leaderd-control", "jobs-leaderd-0", made["StatefulSet/jobs-leaderd"])
	require.False(t, control.Executes())
	require.Equal(t, "SECRET", control.Etcd.Username)
	require.Equal(t, "/teams/reports/", control.Etcd.Prefix)
	require.Equal(t, "10s", control.Election.TTL.String())
	executor := load(t, all, "jobs-leaderd-executor", "e", made["Deployment/jobs-leaderd-executor"])
	require.Equal(t, 64, executor.Capacity)
	require.Equal(t, map[string]string{"disk": "fast"}, executor.Labels)
	require.Equal(t, "10m0s", executor.Executor.DrainGrace.String())
	require.Equal(t, 512*config.MiB, executor.Executor.OutputMaxBytes)
	require.Len(t, executor.ControlAddresses, 3)

	// Every file that a setting names is on a volume that is mounted there.
	checkFiles(t, made["StatefulSet/jobs-leaderd"], control.TLS.CAFile, control.TLS.CertFile, control.TLS.KeyFile,
		control.Etcd.PasswordFile, control.Etcd.TLS.CAFile, control.Etcd.TLS.CertFile, control.Etcd.TLS.KeyFile, control.DataDir)
	checkFiles(t, made["Deployment/jobs-leaderd-executor"], executor.TLS.CAFile, executor.TLS.CertFile, executor.TLS.KeyFile, executor.DataDir)
}

func checkFiles(t *testing.T, p pod, files ...string) {
	t.Helper()
	volumes := map[string]bool{}
	for _, v := range p.spec.Volumes {
		volumes[v.Name] = true
	}
	for _, file := range files {
		require.NotEmpty(t, file)
		mounted := false
		for _, m := range p.spec.Containers[0].VolumeMounts {
			mounted = mounted || (file == m.MountPath || filepath.Dir(file) == m.MountPath) && (volumes[m.Name] || m.Name == "data")
		}
		require.True(t, mounted, file)
	}
}
