package state

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What says less counts.
func TestAdhocRetention(t *testing.T) {
	cluster := Retention{MaxRuns: 7, MaxAge: DefaultRetainedAge}
	require.Equal(t, Retention{MaxRuns: 7, MaxAge: DefaultAdhocAge}, AdhocRetention(cluster))
	cluster.MaxAge = time.Hour
	require.Equal(t, cluster, AdhocRetention(cluster))
	require.Equal(t, 48*time.Hour, Retention{MaxAge: 48 * time.Hour}.Or(AdhocRetention(cluster)).MaxAge)
}
