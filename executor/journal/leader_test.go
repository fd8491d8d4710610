package journal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/executor"
)

func TestTermsNeverGoBack(t *testing.T) {
	l := newLeader()
	five, nine := executor.Leader{Name: "a", Address: "a:1", Term: 5}, executor.Leader{Name: "b", Address: "b:1", Term: 9}
	l.told(five)
	changed := l.changed
	l.told(five)
	require.Equal(t, changed, l.changed, "nothing changed")
	l.told(nine)
	<-changed
	l.told(five)
	require.Equal(t, nine, l.now, "the node that said so is behind")
	l.told(executor.Leader{})
	require.Equal(t, executor.Leader{}, l.now)
	l.told(five)
	require.Equal(t, executor.Leader{}, l.now)
}
