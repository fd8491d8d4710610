package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func load(t *testing.T, yaml string, environ []string, args ...string) (Config, error) {
	t.Helper()
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	Register(flags)
	if yaml != "" {
		path := filepath.Join(t.TempDir(), "leaderd.yaml")
		require.NoError(t, os.WriteFile(path, []byte(yaml), 0o600))
		args = append(args, "--config", path)
	}
	require.NoError(t, flags.Parse(args))
	return Load(flags, environ)
}

func TestLoadNothingGivesDefaults(t *testing.T) {
	cfg, err := load(t, "", nil, "--name", "n1")
	require.NoError(t, err)
	want := Default()
	want.Name, want.Advertise = "n1", "127.0.0.1:7400"
	require.Equal(t, want, cfg)
	require.True(t, cfg.Control() && cfg.Executes() && cfg.EmbedsEtcd())
}

func TestLoadDerivesNameAndAdvertise(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	for listen, want := range map[string]string{
		"0.0.0.0:7400":  host + ":7400",
		":7500":         host + ":7500",
		"[::]:7400":     host + ":7400",
		"10.0.0.7:7400": "10.0.0.7:7400",
	} {
		cfg, err := load(t, "", nil, "--listen", listen)
		require.NoError(t, err)
		require.Equal(t, want, cfg.Advertise, listen)
		require.Equal(t, host, cfg.Name)
	}
}

func TestLoadPrecedence(t *testing.T) {
	yaml := `
name: from-file
capacity: 3
election: {ttl: 7s}
planner:
  horizon: 20s
labels: {zone: file, topology.kubernetes.io/zone: a}
roles: [control]
etcd:
  embedded:
    quota_bytes: 64MiB
`
	environ := []string{"HOME=/root", "LEADERD_CAPACITY=4", "LEADERD_ELECTION_TTL=8s", "LEADERD_DATA_DIR="}
	cfg, err := load(t, yaml, environ, "--election-ttl=9s", "--executor-output-max-bytes", "2GiB")
	require.NoError(t, err)
	require.Equal(t, "from-file", cfg.Name)
	require.Equal(t, 4, cfg.Capacity, "environment over file")
	require.Equal(t, 9*time.Second, cfg.Election.TTL, "flag over environment")
	require.Equal(t, 20*time.Second, cfg.Planner.Horizon)
	require.Equal(t, []string{"control"}, cfg.Roles)
	require.Equal(t, map[string]string{"zone": "file", "topology.kubernetes.io/zone": "a"}, cfg.Labels)
	require.Equal(t, 64*MiB, cfg.Etcd.Embedded.QuotaBytes)
	require.Equal(t, 2*GiB, cfg.Executor.OutputMaxBytes)
	require.Equal(t, "leaderd-data", cfg.DataDir, "an empty variable is none")

	cfg, err = load(t, yaml, []string{"LEADERD_LABELS=disk=ssd,rack=r1"}, "--roles", "control", "--roles", "executor")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"disk": "ssd", "rack": "r1"}, cfg.Labels, "a map is replaced, not merged")
	require.Equal(t, []string{"control", "executor"}, cfg.Roles)
}

func TestLoadFileFromEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(path, []byte("name: x1\n"), 0o600))
	cfg, err := load(t, "", []string{"LEADERD_CONFIG=" + path})
	require.NoError(t, err)
	require.Equal(t, "x1", cfg.Name)

	_, err = load(t, "", []string{"LEADERD_CONFIG=" + path + "x"})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestLoadRefusesWhatItDoesNotKnow(t *testing.T) {
	_, err := load(t, `
elektion: {ttl: 5s}
planner: {horizn: 20s, foo_bar_baz: 1}
executor: 5
etcd:
  embedde: {}
  quota_bytes: 1GiB
`, []string{"LEADERD_ELECTION_TLL=3s", "LEADERD_XYZZY=1"})
	require.Error(t, err)
	text := err.Error()
	for _, want := range []string{
		"elektion: no such setting, did you mean election?",
		"planner.horizn: no such setting, did you mean planner.horizon?",
		"planner.foo_bar_baz: no such setting",
		"executor: must have settings below it",
		"etcd.embedde: no such setting, did you mean etcd.embedded?",
		"etcd.quota_bytes: no such setting, did you mean etcd.embedded.quota_bytes?",
		"LEADERD_ELECTION_TLL: no such variable, did you mean LEADERD_ELECTION_TTL?",
		"LEADERD_XYZZY: no such variable",
	} {
		require.Contains(t, text, want)
	}
}

// A pod beside a service named leaderd gets its address in variables that look
// like ours.
func TestLoadIgnoresServiceLinksAndRunVariables(t *testing.T) {
	_, err := load(t, "", []string{
		"LEADERD_SERVICE_HOST=10.96.0.1", "LEADERD_SERVICE_PORT=7400", "LEADERD_SERVICE_PORT_GRPC=7400",
		"LEADERD_PORT=tcp://10.96.0.1:7400", "LEADERD_PORT_7400_TCP=tcp://10.96.0.1:7400",
		"LEADERD_PORT_7400_TCP_PROTO=tcp", "LEADERD_PORT_7400_TCP_ADDR=10.96.0.1",
		"LEADERD_HEADLESS_SERVICE_HOST=None", "LEADERD_OPS_PORT_7401_TCP_PORT=7401",
		"LEADERD_ADDRESS=x:1", "LEADERD_JOB=a", "LEADERD_SHARDS=1", "LEADERD_TOKEN=7",
	})
	require.NoError(t, err)
}

func TestLoadNamesTheSourceOfBadValues(t *testing.T) {
	_, err := load(t, `
capacity: [1]
planner: {horizon: 15}
executor: {output_max_bytes: 3GB}
roles: {a: b}
`, []string{"LEADERD_OPS_PPROF=maybe", "LEADERD_LABELS=a"}, "--election-ttl", "5")
	require.Error(t, err)
	for _, want := range []string{
		"capacity: must be a single value, not a list",
		`planner.horizon: "15" is not a duration, such as`,
		`executor.output_max_bytes: "3GB" is not a size`,
		"roles: must be a list, not a mapping",
		`ops_pprof (variable LEADERD_OPS_PPROF): "maybe" is neither true nor false`,
		`labels (variable LEADERD_LABELS): "a" is not key=value`,
		`election.ttl (flag --election-ttl): "5" is not a duration`,
	} {
		require.Contains(t, err.Error(), want)
	}
}

func TestLoadEmptyAndBrokenFiles(t *testing.T) {
	_, err := load(t, "# nothing\n", nil)
	require.NoError(t, err)
	_, err = load(t, "etcd:\nname:\n", nil)
	require.NoError(t, err, "null is not set")
	_, err = load(t, "name: [", nil)
	require.ErrorContains(t, err, "leaderd.yaml: ")
}

func TestValidateReportsEverything(t *testing.T) {
	cfg := Default()
	cfg.Name, cfg.Advertise = "-x", "0.0.0.0:7400"
	cfg.Roles = []string{"control", "control", "boss"}
	cfg.Labels = map[string]string{strings.Repeat("k", 129): ""}
	cfg.Capacity = 0
	cfg.Listen = "nowhere"
	cfg.Election.TTL = 10500 * time.Millisecond
	cfg.Planner.MaxPlanned = 1
	cfg.Planner.HedgeDelay = time.Hour
	cfg.Executor.RegistrationTTL = time.Second
	cfg.Executor.DrainGrace = -1
	cfg.Executor.OutputMaxRunBytes = 2 * GiB
	cfg.Etcd.Prefix = "leaderd"
	cfg.Etcd.Password = "p"
	cfg.Etcd.TLS.CertFile = "c"
	cfg.Etcd.Embedded.InitialCluster = []string{"a=http://h:1", "a=http://h:2"}
	cfg.Etcd.Embedded.InitialClusterState = "old"
	cfg.Etcd.Embedded.QuotaBytes = 1
	cfg.Log = Log{Level: "loud", Format: "xml"}
	cfg.TLS = TLS{KeyFile: "k", CAFile: "ca"}
	err := cfg.Validate()
	require.Error(t, err)
	for _, path := range []string{
		"name: ", "advertise: ", "roles[1]: ", "roles[2]: ", "labels[kkk", "capacity: ", "listen: ",
		"election.ttl: 10.5s is not a whole", "planner.horizon: 15s must exceed election.ttl (10.5s)",
		"planner.max_planned: ", "planner.hedge_delay: ", "executor.registration_ttl: ", "executor.drain_grace: ",
		"executor.output_max_run_bytes: ", "etcd.prefix: ", "etcd.username: ", "etcd.tls.cert_file: ",
		"etcd.embedded.initial_cluster[1]: ", "etcd.embedded.initial_cluster: this node (-x)",
		"etcd.embedded.initial_cluster_state: ", "etcd.embedded.quota_bytes: ", "log.level: ", "log.format: ",
		"tls.cert_file: set both", "tls.cert_file: a control node",
	} {
		require.Contains(t, err.Error(), path)
	}
	require.NotContains(t, err.Error(), "password: p")
}

func TestValidateRoles(t *testing.T) {
	cfg := Default()
	cfg.Name, cfg.Advertise = "w1", "w1:7400"
	cfg.Roles = []string{RoleExecutor}
	require.ErrorContains(t, cfg.Validate(), "control_addresses: ")
	cfg.ControlAddresses = []string{"c1"}
	require.ErrorContains(t, cfg.Validate(), "control_addresses[0]: ")
	cfg.ControlAddresses = []string{"c1:7400"}
	cfg.Etcd = Etcd{} // an executor has no use for it
	require.NoError(t, cfg.Validate())
	require.False(t, cfg.EmbedsEtcd())
	cfg.Roles = nil
	require.ErrorContains(t, cfg.Validate(), "roles: ")
}

func TestValidateEndpoints(t *testing.T) {
	for endpoint, ok := range map[string]bool{
		"http://a:2379": true, "https://a": true, "a:2379": true, "a": false, "ftp://a:1": false, "http://": false,
	} {
		cfg := Default()
		cfg.Name, cfg.Advertise = "n", "n:1"
		cfg.Etcd.Endpoints = []string{endpoint}
		cfg.Etcd.Embedded = Embedded{} // not used then
		if err := cfg.Validate(); ok {
			require.NoError(t, err, endpoint)
		} else {
			require.ErrorContains(t, err, "etcd.endpoints[0]: ", endpoint)
		}
	}
}

func TestBytesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Bytes(rapid.Int64Min(0).Draw(t, "bytes"))
		got, err := ParseBytes(b.String())
		if err != nil || got != b {
			t.Fatalf("%d -> %s -> %d, %v", b, b, got, err)
		}
	})
	for _, bad := range []string{"", "-1", "1GB", "9999999999GiB", "1.5GiB", "GiB"} {
		_, err := ParseBytes(bad)
		require.Error(t, err, bad)
	}
}

func TestEverySettingHasHelpAndOneSpelling(t *testing.T) {
	flags, variables := map[string]bool{}, map[string]bool{}
	for _, s := range settings {
		require.NotEmpty(t, s.usage, s.path)
		require.False(t, flags[s.flag], s.flag)
		require.False(t, variables[s.env], s.env)
		flags[s.flag], variables[s.env] = true, true
		require.NotContains(t, otherVariables, s.env)
		def := Default()
		_, err := parse(s.value(&def).Interface(), show(s.value(&def)))
		require.NoError(t, err, "%s: its own default cannot be read back", s.path)
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	cfg := Default()
	cfg.Etcd.Password = "hunter2"
	for _, text := range []string{cfg.Log.Level, show(settingAt(t, "etcd.password").value(&cfg))} {
		require.NotContains(t, text, "hunter2")
	}
	require.Equal(t, "***", cfg.Etcd.Password.String())
}

func settingAt(t *testing.T, path string) setting {
	s, ok := byPath[path]
	require.True(t, ok)
	return s
}

func TestPeerTLS(t *testing.T) {
	cfg := Default()
	cfg.Name, cfg.Advertise = "n1", "n1:7400"
	e := &cfg.Etcd.Embedded
	e.PeerTLS = TLS{CAFile: "ca", CertFile: "cert", KeyFile: "key"}
	e.InitialCluster = []string{cfg.Name + "=https://h:1"}
	require.NoError(t, cfg.Validate())
	e.PeerTLS.CAFile = ""
	require.ErrorContains(t, cfg.Validate(), "etcd.embedded.peer_tls: ca_file, cert_file and key_file belong together")
	e.PeerTLS = TLS{}
	require.ErrorContains(t, cfg.Validate(), `etcd.embedded.initial_cluster[0]: "https://h:1" is not an http://host:port URL`)
	e.InitialCluster = nil
	require.NoError(t, cfg.Validate())
}
