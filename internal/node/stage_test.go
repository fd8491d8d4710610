package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var errPart = errors.New("a part failed")

// A part that fails while others wait for it is told once, whoever else fails.
func TestAFailureIsToldOnce(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	all := newStages(ctx, func(err error) { stop(err) })
	other := errors.New("another one failed at its end")
	all.next().atEnd(func() error { return other })
	all.next().run(func(context.Context) error { return errPart })
	<-ctx.Done()
	err := all.end(context.Cause(ctx))
	require.EqualError(t, err, fmt.Sprint(errPart, "\n", other))
}

// A stage's failure that nobody waited for is told too.
func TestAFailureAtTheEndIsTold(t *testing.T) {
	all := newStages(t.Context(), func(error) {})
	all.next().atEnd(func() error { return errPart })
	require.ErrorIs(t, all.end(nil), errPart)
}

// A node that led in vain is not ready, until another one leads.
func TestLeadingInVain(t *testing.T) {
	now := time.Now()
	require.NoError(t, leads(now, now, errPart, "a", "a"), "it leads by now")
	require.Error(t, leads(now, now.Add(-time.Minute), nil, "a", "a"), "its loop is stuck")
	require.ErrorIs(t, leads(now, time.Time{}, errPart, "a", ""), errPart)
	require.ErrorIs(t, leads(now, time.Time{}, errPart, "a", "a"), errPart)
	require.NoError(t, leads(now, time.Time{}, errPart, "a", "b"))
	require.NoError(t, leads(now, time.Time{}, nil, "a", ""))
}
