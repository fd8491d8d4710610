package static

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRefusals has the schema and the templates refuse what cannot work, with the
// value's name in the message.
func TestRefusals(t *testing.T) {
	external := []string{"--set", "etcd.mode=external,etcd.endpoints={http://etcd:2379}"}
	for name, c := range map[string]struct {
		args []string
		says []string
	}{
		// The schema.
		"unknown value":          {[]string{"--set", "contol.replicas=3"}, []string{"contol"}},
		"unknown value below":    {[]string{"--set", "image.tga=1"}, []string{"image", "tga"}},
		"replicas as text":       {[]string{"--set-string", "control.replicas=three"}, []string{"/control/replicas", "want integer"}},
		"no replicas":            {[]string{"--set", "control.replicas=0"}, []string{"/control/replicas", "want 1"}},
		"etcd's mode":            {[]string{"--set", "etcd.mode=builtin"}, []string{"/etcd/mode", "'external', 'embedded'"}},
		"endpoint without port":  {[]string{"--set", "etcd.mode=external,etcd.endpoints={http://etcd}"}, []string{"/etcd/endpoints/0"}},
		"prefix without slashes": {[]string{"--set", "etcd.prefix=leaderd"}, []string{"/etcd/prefix"}},
		"digest":                 {[]string{"--set", "image.digest=sha256:abc"}, []string{"/image/digest"}},
		"pull policy":            {[]string{"--set", "image.pullPolicy=Sometimes"}, []string{"/image/pullPolicy"}},
		"job without a spec":     {[]string{"--set", "jobs[0].name=a"}, []string{"/jobs/0", "spec"}},
		"level of the log":       {[]string{"--set", "log.level=loud"}, []string{"/log/level"}},
		"service's type":         {[]string{"--set", "service.type=ExternalName"}, []string{"/service/type"}},
		"long name":              {[]string{"--set", "fullnameOverride=a123456789b123456789c123456789d123456789e123456789"}, []string{"/fullnameOverride", "want 45"}},
		"no grace":               {[]string{"--set", "control.drainGraceSeconds=0"}, []string{"/control/drainGraceSeconds"}},
		// The templates.
		"external without endpoints": {[]string{"--set", "etcd.mode=external"}, []string{"etcd.endpoints: etcd.mode=external needs at least one"}},
		"embedded with endpoints":    {[]string{"--set", "etcd.endpoints={http://etcd:2379}"}, []string{"etcd.endpoints: there are some, but etcd.mode is embedded"}},
		"embedded with two members":  {[]string{"--set", "control.replicas=2"}, []string{"control.replicas: 2 is neither 1 nor 3"}},
		"embedded with a user":       {[]string{"--set", "etcd.auth.existingSecret=a"}, []string{"etcd.auth.existingSecret: only for etcd.mode=external"}},
		"TLS of peers alone":         {[]string{"--set", "etcd.embedded.tls=true"}, []string{"etcd.embedded.tls: needs tls.enabled=true"}},
		"TLS of peers there are not": {append(external, "--set", "etcd.embedded.tls=true"), []string{"etcd.embedded.tls: only for etcd.mode=embedded"}},
		"TLS without a secret":       {[]string{"--set", "tls.enabled=true"}, []string{"tls.existingSecret: tls.enabled needs it"}},
		"certificate without TLS":    {[]string{"--set", "tls.certManager.enabled=true"}, []string{"tls.certManager.enabled: needs tls.enabled"}},
		"certificate without issuer": {[]string{"--set", "tls.enabled=true,tls.certManager.enabled=true"}, []string{"tls.certManager.issuerRef.name: required"}},
		"nobody runs jobs":           {[]string{"--set", "control.executor=false"}, []string{"control.executor: false", "nothing would run jobs"}},
		"scraped twice": {
			[]string{"--set", "metrics.podMonitor.enabled=true,metrics.serviceMonitor.enabled=true"},
			[]string{"metrics.serviceMonitor.enabled: metrics.podMonitor.enabled is set too"},
		},
		"ingress without hosts": {[]string{"--set", "ingress.enabled=true"}, []string{"ingress.hosts: ingress.enabled needs at least one"}},
		"route without gateway": {[]string{"--set", "gateway.grpcRoute.enabled=true"}, []string{"gateway.grpcRoute.parentRefs: "}},
		"our setting":           {[]string{"--set", "config.listen=0.0.0.0:1"}, []string{"config.listen: the chart sets this: the port is 7400"}},
		"our setting below":     {[]string{"--set", "config.etcd.prefix=/a/"}, []string{"config.etcd.prefix: the chart sets this"}},
		"our setting of executors": {
			[]string{"--set", "executor.config.executor.drain_grace=1m"},
			[]string{"executor.config.executor.drain_grace: the chart sets this: use control.drainGraceSeconds and executor.drainGraceSeconds"},
		},
		"old Kubernetes": {[]string{"--kube-version", "1.29.9"}, []string{"incompatible with Kubernetes v1.29.9"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, refusal := template(t, c.args...)
			for _, part := range c.says {
				require.Contains(t, refusal, part)
			}
		})
	}
}

// TestParentChart: Helm gives every chart below another one the value global.
func TestParentChart(t *testing.T) {
	render(t, "--set", "global.imageRegistry=registry.example.com")
}
