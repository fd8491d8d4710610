package config

import (
	"slices"
	"time"

	"github.com/leaderd/leaderd/state"
)

// Roles of a node.
const (
	// RoleControl campaigns for leadership, serves the API and talks to etcd.
	RoleControl = "control"
	// RoleExecutor runs work and speaks only gRPC.
	RoleExecutor = "executor"
)

// Config is all that a process can be told. Sizes are bytes; see Bytes for how
// they are written.
type Config struct {
	// Name identifies the node in the cluster: 1–128 bytes of letters, digits,
	// '.', '_' and '-', beginning with a letter or digit. Two live processes must
	// not share one. Default: the host's name.
	Name string `koanf:"name" usage:"the node's name, unique in the cluster"`

	// DataDir holds the embedded etcd and the output of runs. It is created where
	// it is missing, readable by its owner alone. Default: leaderd-data in the
	// working directory.
	DataDir string `koanf:"data_dir" usage:"directory for the embedded etcd and the output of runs"`

	// Roles is one or both of control and executor. Default: both.
	Roles []string `koanf:"roles" usage:"control, executor or both"`

	// Labels are what node selectors of jobs match; at most 32, keys and values of
	// at most 128 bytes. Default: none.
	Labels map[string]string `koanf:"labels" usage:"labels that node selectors match"`

	// Capacity is how many runs the executor has at a time, 1–1048576.
	// Default: 256.
	Capacity int `koanf:"capacity" usage:"runs at a time"`

	// Resources are what the executor has beside that, of which jobs name how much a run
	// needs; at most 16, amounts of 1–1048576. Default: none.
	Resources map[string]int `koanf:"resources" usage:"amounts of what jobs' resources take parts of, such as gpu=2"`

	// Listen is the host:port of the gRPC listener; port 0 picks a free one.
	// Default: 127.0.0.1:7400.
	Listen string `koanf:"listen" usage:"host:port of the gRPC listener"`

	// Advertise is the host:port at which other nodes reach Listen; never a
	// wildcard. Port 0 stands for the port that was bound. Default: Listen, with
	// the host's name in place of a wildcard.
	Advertise string `koanf:"advertise" usage:"host:port at which others reach the gRPC listener"`

	// OpsListen is the host:port of the plain HTTP listener for /livez, /readyz
	// and /metrics; empty turns it off. Default: 127.0.0.1:7401.
	OpsListen string `koanf:"ops_listen" usage:"host:port of the HTTP listener for health and metrics"`

	// OpsPprof serves /debug/pprof on OpsListen too. Profiles tell much about a
	// process: keep the listener private. Default: off.
	OpsPprof bool `koanf:"ops_pprof" usage:"serve /debug/pprof on the ops listener"`

	// ControlAddresses are the host:port of control nodes, for a node without the
	// role control, which needs at least one; others ignore it. Default: none.
	ControlAddresses []string `koanf:"control_addresses" usage:"gRPC addresses of control nodes, for executor-only nodes"`

	// Etcd is where the truth is kept. Only control nodes use it.
	Etcd Etcd `koanf:"etcd"`
	// Election is how control nodes agree on a leader.
	Election Election `koanf:"election"`
	// Planner is what a leader does.
	Planner Planner `koanf:"planner"`
	// Retention is for how long a leader keeps past runs.
	Retention Retention `koanf:"retention"`
	// Executor is what a node with that role does.
	Executor Executor `koanf:"executor"`
	// Log is what the process writes about itself.
	Log Log `koanf:"log"`
	// TLS protects the gRPC listener and connections to other nodes.
	TLS TLS `koanf:"tls"`
}

// Election is how control nodes agree on a leader.
type Election struct {
	// TTL is the life of a leader's lease, in whole seconds, 2s–60s. A dead leader
	// is followed after about that time. Default: 5s.
	TTL time.Duration `koanf:"ttl" usage:"life of a leader's lease"`
}

// Planner is what a leader does.
type Planner struct {
	// Horizon is how far ahead the leader plans, at most 5m. While it exceeds
	// the time in which a dead leader is followed, no slot is late for want of a
	// leader, so it must exceed election.ttl by more than 5s. Default: 15s.
	Horizon time.Duration `koanf:"horizon" usage:"how far ahead the leader plans"`

	// MaxPlanned is how many shards may be planned at a time, 1000–10000000: a
	// bound on memory, about 200 bytes each. Default: 500000.
	MaxPlanned int `koanf:"max_planned" usage:"shards that may be planned at a time"`

	// HedgeDelay is how long after its due time a shard that nobody claimed is
	// planned onto a second executor, 50ms–1m. Default: 500ms.
	HedgeDelay time.Duration `koanf:"hedge_delay" usage:"when an unclaimed shard is planned onto a second executor"`
}

// Retention is for how long a leader keeps past runs. All control nodes should have
// the same.
type Retention struct {
	// MaxRuns is how many of the newest runs of a job are kept at least, and at most
	// an eighth more, unless the job says otherwise, 1–1000000. Default: 1000.
	MaxRuns int `koanf:"max_runs" usage:"past runs kept of a job that does not say"`

	// MaxAge is for how long they are kept, in the same way, 10m–87840h.
	// Default: 720h.
	MaxAge time.Duration `koanf:"max_age" usage:"for how long they are kept"`

	// Period is how often each job's history is looked at, 1s–24h. Default: 10m.
	Period time.Duration `koanf:"period" usage:"how often each job's history is looked at"`

	// StoreBudgetBytes is how much etcd may have in use: beyond it the oldest history
	// of all jobs is removed, whatever their limits. 0, or at least 8MiB. Default: 0,
	// which is half of etcd's quota.
	StoreBudgetBytes Bytes `koanf:"store_budget_bytes" usage:"what etcd may have in use before the oldest history goes; 0: half of its quota"`
}

// Executor is what a node with the role executor does.
type Executor struct {
	// RegistrationTTL is the life of the node's lease, in whole seconds, 2s–60s.
	// The runs of a dead executor start elsewhere after about that time.
	// Default: 5s.
	RegistrationTTL time.Duration `koanf:"registration_ttl" usage:"life of the node's registration"`

	// DrainGrace is how long running work may go on after the process was asked
	// to end, 0–24h; then it is stopped as on a timeout. 0 stops it at once.
	// Default: 30s.
	DrainGrace time.Duration `koanf:"drain_grace" usage:"how long running work may go on at shutdown"`

	// OutputMaxBytes is how much output of runs is kept on disk, at least 1MiB;
	// the oldest goes first. Default: 1GiB.
	OutputMaxBytes Bytes `koanf:"output_max_bytes" usage:"output of runs kept on disk"`

	// OutputMaxRunBytes is how much of it one attempt may fill, at least 64KiB and
	// at most OutputMaxBytes. Default: 16MiB.
	OutputMaxRunBytes Bytes `koanf:"output_max_run_bytes" usage:"output kept of one attempt"`
}

// Default is the configuration of a node that was told nothing, but for Name
// and Advertise, which Load derives from the host.
func Default() Config {
	return Config{
		DataDir:   "leaderd-data",
		Roles:     []string{RoleControl, RoleExecutor},
		Capacity:  256,
		Listen:    "127.0.0.1:7400",
		OpsListen: "127.0.0.1:7401",
		Etcd:      defaultEtcd(),
		Election:  Election{TTL: 5 * time.Second},
		Planner: Planner{
			Horizon:    15 * time.Second,
			MaxPlanned: 500_000,
			HedgeDelay: 500 * time.Millisecond,
		},
		Retention: Retention{MaxRuns: state.DefaultRetainedRuns, MaxAge: state.DefaultRetainedAge, Period: 10 * time.Minute},
		Executor: Executor{
			RegistrationTTL:   5 * time.Second,
			DrainGrace:        30 * time.Second,
			OutputMaxBytes:    1 * GiB,
			OutputMaxRunBytes: 16 * MiB,
		},
		Log: Log{Level: "info", Format: FormatHuman},
	}
}

// Control tells whether the node has the role control.
func (c Config) Control() bool { return slices.Contains(c.Roles, RoleControl) }

// Executes tells whether the node has the role executor.
func (c Config) Executes() bool { return slices.Contains(c.Roles, RoleExecutor) }

// EmbedsEtcd tells whether the node runs an etcd member of its own: a control
// node that was given no endpoints.
func (c Config) EmbedsEtcd() bool { return c.Control() && len(c.Etcd.Endpoints) == 0 }
