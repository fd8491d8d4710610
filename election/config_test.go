package election

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDefaultsAreValid(t *testing.T) {
	cfg := Config{Name: "a", Address: "a:1"}.WithDefaults()
	require.NoError(t, cfg.Validate())
	require.Equal(t, 5*time.Second, cfg.TTL)
	require.Equal(t, time.Second, cfg.TrustMargin)
	require.Equal(t, 5*time.Second, cfg.StopLimit)
	require.NoError(t, ObserverConfig{}.WithDefaults().Validate())
}

func TestValidateReportsAllViolations(t *testing.T) {
	err := Config{
		Prefix: "x/", TTL: 1500 * time.Millisecond, TrustMargin: time.Second, StopLimit: -1, RetryMin: -1, RetryMax: -2,
	}.WithDefaults().Validate()
	for _, field := range []string{"Prefix", "Name", "Address", "TTL", "TrustMargin", "StopLimit", "RetryMin", "RetryMax"} {
		require.ErrorContains(t, err, field+": ")
	}
	err = ObserverConfig{Prefix: "x", Resync: -1}.WithDefaults().Validate()
	require.ErrorContains(t, err, "Prefix: ")
	require.ErrorContains(t, err, "Resync: ")
	_, err = New(nil, Config{})
	require.ErrorContains(t, err, "Name: required")
	_, err = NewObserver(nil, ObserverConfig{Prefix: "x"})
	require.ErrorContains(t, err, "Prefix: ")
}

func TestPrefixes(t *testing.T) {
	for prefix, valid := range map[string]bool{
		"/": false, "": false, "a": false, "/a/": false, "/a/candidates": false, "/candidates/a": false,
		"/a": true, "/a/b": true, "/a-1": true, "/candidates-1": true,
	} {
		require.Equal(t, valid, validatePrefix(prefix) == nil, prefix)
	}
}

// E01: no election's keys lie in another's range.
func TestElectionsAreDisjoint(t *testing.T) {
	segments := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "ab", "b", "a-b", "c"}), 1, 3)
	rapid.Check(t, func(t *rapid.T) {
		one := "/" + strings.Join(segments.Draw(t, "one"), "/")
		other := "/" + strings.Join(segments.Draw(t, "other"), "/")
		if one == other {
			return
		}
		require.NoError(t, validatePrefix(one))
		require.False(t, strings.HasPrefix(root(one)+"/", root(other)+"/"))
	})
}

func TestValueSurvivesItsEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := value{
			Version: valueVersion,
			Name:    rapid.StringN(1, 50, -1).Draw(t, "name"),
			Address: rapid.String().Draw(t, "address"),
		}
		s, err := encodeValue(want.Name, want.Address)
		require.NoError(t, err)
		got, err := decodeValue([]byte(s))
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

func TestForeignValues(t *testing.T) {
	v, err := decodeValue([]byte(`{"version":7,"name":"n","address":"a:1","zone":"x"}`))
	require.NoError(t, err, "fields of a later version are ignored")
	require.Equal(t, "n", v.Name)
	for _, s := range []string{"", "n", "{}", `{"version":1}`, `{"name":"n"}`, "null"} {
		_, err := decodeValue([]byte(s))
		require.Error(t, err, s)
	}
}

func TestMetricsAreWellNamed(t *testing.T) {
	reg := prometheus.NewRegistry()
	newMetrics(reg)
	families, err := reg.Gather()
	require.NoError(t, err)
	require.Len(t, families, 6)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}
