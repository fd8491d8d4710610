package cli

import (
	"context"
	"errors"
	"net"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/leaderd/leaderd/client"
	"github.com/leaderd/leaderd/internal/config"
	"github.com/leaderd/leaderd/internal/rpc"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

const (
	addressEnv     = "LEADERD_ADDRESS"
	defaultAddress = "127.0.0.1:7400"
	// actorKey is the metadata that says who asks.
	actorKey = "leaderd-actor"
)

// dialer is how a command reaches the API.
type dialer struct {
	address string
	timeout time.Duration
	tls     config.TLS
}

// bind adds the flags for it.
func (o *dialer) bind(flags *pflag.FlagSet, d Deps) {
	address := d.getenv(addressEnv)
	if address == "" {
		address = defaultAddress
	}
	flags.StringVar(&o.address, "address", address, "host:port of control nodes, separated by commas (env "+addressEnv+")")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "bound on each request")
	flags.StringVar(&o.tls.CAFile, "tls-ca-file", d.getenv("LEADERD_TLS_CA_FILE"), "PEM file of the roots for the server's certificate; turns TLS on")
	flags.StringVar(&o.tls.CertFile, "tls-cert-file", d.getenv("LEADERD_TLS_CERT_FILE"), "PEM file of the client certificate")
	flags.StringVar(&o.tls.KeyFile, "tls-key-file", d.getenv("LEADERD_TLS_KEY_FILE"), "PEM file of its key")
}

// api is the API of a cluster.
type api struct {
	submissions leaderdv1.SubmissionServiceClient
	jobs        leaderdv1.JobServiceClient
	runs        leaderdv1.RunServiceClient
	saved       leaderdv1.CheckpointServiceClient
	timeline    leaderdv1.TimelineServiceClient
	backfills   leaderdv1.BackfillServiceClient
	calendars   leaderdv1.CalendarServiceClient
	cluster     leaderdv1.ClusterServiceClient
	dead        leaderdv1.DeadLetterServiceClient
	queue       leaderdv1.QueueServiceClient
	circuits    leaderdv1.CircuitServiceClient
	conn        *client.Conn
}

func (a *api) close() { _ = a.conn.Close() } // fails only if closed before

// with makes a command's body out of one that uses the API.
func (o *dialer) with(f func(ctx context.Context, a *api, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a, err := o.dial()
		if err != nil {
			return err
		}
		defer a.close()
		return near(cmd.Context(), a, f(cmd.Context(), a, args))
	}
}

// dial makes the connection; the first request connects.
func (o *dialer) dial() (*api, error) {
	if o.timeout <= 0 {
		return nil, usagef("--timeout: %s is not positive", o.timeout)
	}
	addresses, err := parseAddresses(o.address)
	if err != nil {
		return nil, err
	}
	secure, err := o.tls.Client()
	if err != nil {
		return nil, usageError{err}
	}
	var cfg rpc.ClientConfig
	if secure != nil {
		cfg.Credentials = credentials.NewTLS(secure)
	}
	var nodes []*grpc.ClientConn
	for _, address := range addresses {
		node, err := rpc.Dial(address, cfg)
		if err != nil {
			return nil, errors.Join(usageError{err}, client.Over(nodes...).Close())
		}
		nodes = append(nodes, node)
	}
	conn := client.Over(nodes...)
	via := &caller{ClientConnInterface: conn, dialer: o, actor: actor()}
	return &api{
		submissions: leaderdv1.NewSubmissionServiceClient(via),
		jobs:        leaderdv1.NewJobServiceClient(via),
		runs:        leaderdv1.NewRunServiceClient(via),
		saved:       leaderdv1.NewCheckpointServiceClient(via),
		timeline:    leaderdv1.NewTimelineServiceClient(via),
		backfills:   leaderdv1.NewBackfillServiceClient(via),
		calendars:   leaderdv1.NewCalendarServiceClient(via),
		cluster:     leaderdv1.NewClusterServiceClient(via),
		dead:        leaderdv1.NewDeadLetterServiceClient(via),
		queue:       leaderdv1.NewQueueServiceClient(via),
		circuits:    leaderdv1.NewCircuitServiceClient(via),
		conn:        conn,
	}, nil
}

// caller bounds each request, says who asks, and keeps what an error needs to be
// explained.
type caller struct {
	grpc.ClientConnInterface
	dialer *dialer
	actor  string
}

// Invoke implements grpc.ClientConnInterface.
func (c *caller) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, c.dialer.timeout)
	defer cancel()
	if c.actor != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, actorKey, c.actor)
	}
	if err := c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...); err != nil {
		return &apiError{err: err, address: c.dialer.address, timeout: c.dialer.timeout}
	}
	return nil
}

// actor is the name of the user, where the system tells, cut to what metadata may
// hold.
func actor() string {
	u, err := user.Current()
	if err != nil {
		return "" // the server has a name for those
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '_'
		}
		return r
	}, u.Username)
}

func parseAddresses(list string) ([]string, error) {
	var out []string
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		if host, port, err := net.SplitHostPort(item); err != nil || host == "" || port == "" {
			return nil, usagef("--address: %q is not host:port", item)
		}
		out = append(out, item)
	}
	if len(out) == 0 {
		return nil, usagef("--address: no address")
	}
	return out, nil
}

// pages calls f with each page's token until there is no further page.
func pages(f func(token string) (next string, err error)) error {
	token := ""
	for {
		next, err := f(token)
		if err != nil || next == "" {
			return err
		}
		if next == token {
			return errors.New("the server answers the same page again")
		}
		token = next
	}
}
