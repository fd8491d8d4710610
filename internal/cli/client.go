package cli

import (
	"context"
	"fmt"
	"net"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

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

// serviceConfig spreads requests over the addresses that can be reached and tries
// those that can be repeated at another when one is going away. A trigger would
// make a second run, and a repeated delete would find nothing: they are not.
const serviceConfig = `{
  "loadBalancingConfig": [{"round_robin": {}}],
  "methodConfig": [{
    "name": [
      {"service": "leaderd.v1.JobService", "method": "GetJob"},
      {"service": "leaderd.v1.JobService", "method": "ListJobs"},
      {"service": "leaderd.v1.JobService", "method": "UpdateJob"},
      {"service": "leaderd.v1.JobService", "method": "PauseJob"},
      {"service": "leaderd.v1.JobService", "method": "ResumeJob"},
      {"service": "leaderd.v1.RunService"},
      {"service": "leaderd.v1.ClusterService"}
    ],
    "retryPolicy": {
      "maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
      "retryableStatusCodes": ["UNAVAILABLE"]
    }
  }]
}`

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
	jobs    leaderdv1.JobServiceClient
	runs    leaderdv1.RunServiceClient
	cluster leaderdv1.ClusterServiceClient
	conn    *grpc.ClientConn
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
		return f(cmd.Context(), a, args)
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
	cfg := rpc.ClientConfig{Options: []grpc.DialOption{
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithUnaryInterceptor(o.unary()),
	}}
	if secure != nil {
		cfg.Credentials = credentials.NewTLS(secure)
	}
	target := "dns:///" + addresses[0] // a name may stand for all control nodes
	if len(addresses) > 1 {
		list := manual.NewBuilderWithScheme("leaderd")
		var state resolver.State
		for _, address := range addresses {
			host, _, _ := net.SplitHostPort(address)
			state.Addresses = append(state.Addresses, resolver.Address{Addr: address, ServerName: host})
		}
		list.InitialState(state)
		cfg.Options = append(cfg.Options, grpc.WithResolvers(list))
		target = "leaderd:///cluster"
	}
	conn, err := rpc.Dial(target, cfg)
	if err != nil {
		return nil, err
	}
	return &api{
		jobs:    leaderdv1.NewJobServiceClient(conn),
		runs:    leaderdv1.NewRunServiceClient(conn),
		cluster: leaderdv1.NewClusterServiceClient(conn),
		conn:    conn,
	}, nil
}

// unary bounds each request, says who asks, and keeps what an error needs to be
// explained.
func (o *dialer) unary() grpc.UnaryClientInterceptor {
	who := actor()
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		ctx, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		if who != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, actorKey, who)
		}
		if err := call(ctx, method, req, reply, conn, opts...); err != nil {
			return &apiError{err: err, address: o.address, timeout: o.timeout}
		}
		return nil
	}
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
			return fmt.Errorf("the server answers the same page again")
		}
		token = next
	}
}
