package kv_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/state/kv"
)

func TestPrefixEnd(t *testing.T) {
	require.Equal(t, "a0", kv.PrefixEnd("a/"))
	require.Equal(t, "b", kv.PrefixEnd("a\xff"))
	require.Equal(t, "\x00", kv.PrefixEnd("\xff\xff"))
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.StringN(1, 8, 8).Draw(t, "prefix")
		key := rapid.StringN(0, 8, 8).Draw(t, "key")
		if rapid.Bool().Draw(t, "inside") {
			key = prefix + key
		}
		require.Equal(t, strings.HasPrefix(key, prefix), key >= prefix && key < kv.PrefixEnd(prefix))
	})
}

func TestTTLSeconds(t *testing.T) {
	for ttl, want := range map[time.Duration]int64{
		1: 1, time.Second: 1, time.Second + 1: 2, time.Minute: 60, kv.MaxTTL: 9_000_000_000,
	} {
		got, err := kv.TTLSeconds(ttl)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, ttl := range []time.Duration{0, -1, kv.MaxTTL + 1} {
		_, err := kv.TTLSeconds(ttl)
		require.ErrorIs(t, err, kv.ErrInvalid)
	}
}
