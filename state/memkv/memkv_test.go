package memkv_test

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/kv/kvtest"
	"github.com/leaderd/leaderd/state/memkv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The suite runs in virtual time: its leases take no time to end.
func TestConformance(t *testing.T) {
	kvtest.Run(t, kvtest.Config{
		New: func(t *testing.T) kv.KV {
			s := memkv.New()
			t.Cleanup(s.Close)
			return s
		},
		Wrap: synctest.Test,
	})
}
