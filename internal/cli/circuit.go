package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func jobResetCircuit(d Deps, o *dialer) *cobra.Command {
	var ns namespace
	c := &cobra.Command{
		Use:   "reset-circuit JOB...",
		Short: "Close the circuits of jobs, so that their runs start again",
		Long: `Close the circuits of jobs (spec.circuitBreaker) and forget what they have counted. The
next run starts, and is no probe. A circuit that jobs share by its target is closed for
all of them.`,
		Args: someArgs("JOB"),

		ValidArgsFunction: o.completeJob(&ns, 0),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			names, err := ns.all(args)
			if err != nil {
				return err
			}
			return each(d, names, func(name string) (string, error) {
				resp, err := a.circuits.ResetCircuit(ctx, &leaderdv1.ResetCircuitRequest{Name: name})
				return "circuit is closed, it was " + circuitWord(resp.GetBefore().GetState()), err
			})
		}),
	}
	ns.bind(c, o)
	return c
}

func circuitWord(s leaderdv1.Circuit_State) string {
	switch s {
	case leaderdv1.Circuit_STATE_CLOSED:
		return "closed"
	case leaderdv1.Circuit_STATE_OPEN:
		return "open"
	case leaderdv1.Circuit_STATE_HALF_OPEN:
		return "half-open"
	case leaderdv1.Circuit_STATE_UNSPECIFIED:
	}
	return "?" // of a newer version
}

// circuitText is a circuit in a line.
func circuitText(c *leaderdv1.Circuit) string {
	text := circuitWord(c.GetState())
	switch c.GetState() {
	case leaderdv1.Circuit_STATE_OPEN:
		text += fmt.Sprintf(" until %s: %s", instant(c.GetOpenUntil()), c.GetDetail())
	case leaderdv1.Circuit_STATE_HALF_OPEN:
		text += fmt.Sprintf(", run %s of %s is its probe: %s", runID(c.GetProbe()), shortJob(c.GetProbe()), c.GetDetail())
	case leaderdv1.Circuit_STATE_CLOSED, leaderdv1.Circuit_STATE_UNSPECIFIED:
		switch {
		case c.GetFailuresInARow() > 0:
			text += fmt.Sprintf(", %d failed in a row", c.GetFailuresInARow())
		case c.GetFailed() > 0:
			text += fmt.Sprintf(", %d of the last %d failed", c.GetFailed(), c.GetCounted())
		}
	}
	if c.GetTarget() != "" {
		text += " (target " + c.GetTarget() + ")"
	}
	return text
}
