package planner

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/state"
)

// newTestTerm is a term that nobody runs.
func newTestTerm(t *testing.T) *term {
	tm := newTerm(&Planner{cfg: Config{}.WithDefaults(), metrics: newMetrics(nil)}, state.Term{Number: 1})
	require.NoError(t, tm.rebalance())
	return tm
}
