package etcdkv_test

import (
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/leaderd/leaderd/state/etcdkv"
	"github.com/leaderd/leaderd/state/etcdkv/inproc"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/kvtest"
	"github.com/leaderd/leaderd/state/memkv"
	"github.com/leaderd/leaderd/test/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start is a member whose leases may be as short as a second.
func start(t testing.TB, opts ...etcdtest.Option) *etcdtest.Server {
	t.Helper()
	return etcdtest.Start(t, append([]etcdtest.Option{
		etcdtest.WithTick(20*time.Millisecond, 200*time.Millisecond),
	}, opts...)...)
}

func TestConformance(t *testing.T) {
	s := start(t)
	t.Run("grpc", func(t *testing.T) {
		store := etcdkv.New(s.Client(), etcdkv.Options{})
		kvtest.Run(t, kvtest.Config{New: func(*testing.T) kv.KV { return store }})
	})
	t.Run("inproc", func(t *testing.T) {
		store := inproc.New(s.Etcd(0).Server, s.Client())
		kvtest.Run(t, kvtest.Config{New: func(*testing.T) kv.KV { return store }})
	})
}

func TestModel(t *testing.T) {
	s := start(t)
	newModel := func() (kv.KV, func()) {
		m := memkv.New()
		return m, m.Close
	}
	t.Run("grpc", func(t *testing.T) {
		kvtest.Model(t, newModel, etcdkv.New(s.Client(), etcdkv.Options{}))
	})
	t.Run("inproc", func(t *testing.T) {
		kvtest.Model(t, newModel, inproc.New(s.Etcd(0).Server, s.Client()))
	})
}

// The model refuses by size where etcd does, for every kind of operation.
func TestSizeLimitIsTheModels(t *testing.T) {
	s := start(t)
	store := inproc.New(s.Etcd(0).Server, s.Client())
	model := memkv.New()
	defer model.Close()
	filler := make([]byte, 2*kv.MaxRequestBytes)
	for name, around := range map[string][]kv.Op{
		"put":     {kv.Put("a", nil, 0), kv.Put("b", []byte("value"), 0)},
		"get":     {kv.GetRange("a", "b", 300), kv.Get("k")},
		"delete":  {kv.Delete("x"), kv.DeleteRange("y", "z")},
		"compare": {kv.Nested(&kv.Txn{If: []kv.Compare{{Key: "a", Target: kv.TargetValue, Value: "v"}, {Key: "a", End: "b", Target: kv.TargetModRevision, Int: 1 << 40}, {Key: "c", Target: kv.TargetVersion, Relation: kv.Less}}})},
		"nested":  {kv.Nested(&kv.Txn{Then: []kv.Op{kv.Nested(&kv.Txn{Else: []kv.Op{kv.Put("e", make([]byte, 200), 0)}})}})},
	} {
		// The greatest value that is accepted.
		limit := func(s kv.KV) int {
			return sort.Search(len(filler), func(n int) bool {
				// Its compare fails, so that nothing is written.
				_, err := s.Txn(t.Context(), kv.Txn{
					If:   []kv.Compare{{Key: "filler", Target: kv.TargetVersion, Relation: kv.Greater}},
					Then: append([]kv.Op{kv.Put("filler", filler[:n], 0)}, around...),
				})
				return err != nil
			})
		}
		require.InDelta(t, limit(store), limit(model), 10, name)
	}
}
