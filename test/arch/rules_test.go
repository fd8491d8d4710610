package arch_test

// self is the path of our module.
const self = "github.com/leaderd/leaderd"

// std stands for the whole standard library in a rule's only list.
const std = "std"

// support stands for the packages that serve tests, named as httptest is: they
// hold conformance suites and fakes.
const support = "*test"

// A rule limits what the packages it binds may import. Packages are named by
// patterns: a path, or a path followed by "/..." for the package and all below
// it; "..." alone is every package. A pattern without a dot in its first
// element is relative to our module.
type rule struct {
	name   string
	reason string

	packages []string // the packages that the rule binds
	except   []string // of those, the ones it leaves free

	// Exactly one of these three is set.
	never    []string // none of these may be imported
	only     []string // nothing but these may be imported
	together []string // no package may import two of these

	// deep also counts what is imported through other packages of ours: a
	// program that links the package then links nothing forbidden.
	deep bool

	// offence is a chain of imports, each the importer of the next, that the
	// rule must find; for together, a package and then its imports.
	offence []string
}

var rules = []rule{
	{
		name:     "state is pure",
		reason:   "the domain types are read by every part, so they must cost nobody a dependency",
		packages: []string{"state"},
		only:     []string{std},
		offence:  []string{"state", "google.golang.org/protobuf/proto"},
	},
	{
		name:     "schedules, placement and the timeline are pure",
		reason:   "the leader, a preview and a simulation must compute the same, from their arguments alone",
		packages: []string{"planner/schedule/...", "planner/placement/...", "planner/timeline/..."},
		never: []string{
			"net/...", "os/...", "log/...", "database/...", "google.golang.org/...", "github.com/hashicorp/...",
			"state/kv/...", "state/store/...",
		},
		deep:    true,
		offence: []string{"planner/timeline", "planner/placement", "os"},
	},
	{
		name:     "etcd stays behind the seam",
		reason:   "all else runs on the in-memory store too, in virtual time; zap is etcd's logger and is bridged beside it",
		packages: []string{"..."},
		except:   []string{"state/etcdkv/...", "election/...", "internal/node/...", "internal/etcd/...", "test/...", support},
		never:    []string{"go.etcd.io/...", "go.uber.org/zap/..."},
		offence:  []string{"planner", "go.etcd.io/etcd/client/v3"},
	},
	{
		name:     "planner does not know executor",
		reason:   "they meet only in the worker protocol, so either side may be of another version or language",
		packages: []string{"planner/..."},
		never:    []string{"executor/..."},
		deep:     true,
		offence:  []string{"planner", "state/store", "executor"},
	},
	{
		name:     "executor does not know planner",
		reason:   "they meet only in the worker protocol, so either side may be of another version or language",
		packages: []string{"executor/..."},
		never:    []string{"planner/..."},
		deep:     true,
		offence:  []string{"executor", "planner/placement"},
	},
	{
		name:     "executor speaks only gRPC",
		reason:   "worker machines hold no etcd credentials and take no part in elections",
		packages: []string{"executor/..."},
		never:    []string{"go.etcd.io/...", "election/..."},
		deep:     true,
		offence:  []string{"executor", "state/etcdkv", "go.etcd.io/etcd/client/v3"},
	},
	{
		name:     "client is light",
		reason:   "users link it into their own programs: generated code and gRPC is all it may bring along",
		packages: []string{"client/..."},
		only: []string{
			std, "client/...", "proto/leaderd/v1", "proto/leaderd/worker/v1",
			"google.golang.org/grpc/...", "google.golang.org/protobuf/...", "google.golang.org/genproto/...",
		},
		deep:    true,
		offence: []string{"client", "proto/leaderd/v1", "state"},
	},
	{
		name:     "web calls the API",
		reason:   "the UI can do nothing that the API forbids, and needs no second authorisation",
		packages: []string{"internal/web/..."},
		never:    []string{"state/...", "planner/...", "executor/...", "election/...", "proto/leaderd/state/..."},
		offence:  []string{"internal/web", "state/store"},
	},
	{
		name:     "one composition root",
		reason:   "only the node, and what starts whole nodes, may know both sides",
		packages: []string{"..."},
		except:   []string{"internal/node/...", "internal/dev/...", "cmd/...", "test/..."},
		together: []string{"planner/...", "executor/..."},
		offence:  []string{"internal/api", "planner", "executor/runner"},
	},
	{
		name:     "nobody imports programs and tests",
		reason:   "cmd holds main alone; what serves tests brings their libraries along and is no part of the product",
		packages: []string{"..."},
		except:   []string{"cmd/...", "test/...", support},
		never:    []string{"cmd/...", "test/...", support},
		offence:  []string{"internal/node", "state/kv/kvtest"},
	},
}
