package node

import (
	"context"

	"github.com/leaderd/leaderd/executor"
	"github.com/leaderd/leaderd/executor/journal"
)

// executeRemotely is the work of a node that is an executor alone: it knows no
// store, only control nodes.
func (n *Node) executeRemotely(ctx context.Context, all *stages) error {
	client, err := journal.New(func() []string { return n.cfg.ControlAddresses }, n.dial, journal.Config{
		Logger: n.log.Named("journal"), Registerer: n.registry,
	})
	if err != nil {
		return err
	}
	all.next().run(client.Run)
	n.up()
	return n.execute(ctx, executor.Waiting(client), client)
}
