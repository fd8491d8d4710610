package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/leaderd/leaderd/internal/config"
)

func serveCommand(d Deps) *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long: `Run a node until SIGTERM or SIGINT asks it to end; it then hands over its
leadership, lets running work go on for executor.drain_grace, and ends. A second
signal ends it at once.

Each setting can be given as a flag, as an environment variable (election-ttl is
LEADERD_ELECTION_TTL) and in a YAML file (election: {ttl: 5s}); flags win over
the environment and the environment over the file.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(cmd.Flags(), d.Environ)
			if err != nil {
				return usageError{err}
			}
			return ended(cmd.Context(), d.Serve(cmd.Context(), cfg, cfg.Log.Logger(d.Stderr)))
		},
	}
	config.Register(c.Flags())
	c.Flags().SortFlags = false // in order of meaning
	return c
}

// ended is nil where a command ended because it was asked to.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
