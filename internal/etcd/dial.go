package etcd

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/leaderd/leaderd/internal/config"
	"github.com/leaderd/leaderd/state/etcdkv"
)

// Dial makes a client of the etcd at cfg.Endpoints. It reads the files that cfg
// names. With a user it authenticates, blocking at most cfg.DialTimeout;
// otherwise it returns at once and the client connects, and connects anew, by
// itself. The caller closes the client.
func Dial(cfg config.Etcd, log hclog.Logger) (*clientv3.Client, error) {
	secure, err := cfg.TLS.Client()
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	password := string(cfg.Password)
	if cfg.PasswordFile != "" {
		content, err := os.ReadFile(cfg.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("etcd: read password: %w", err)
		}
		password = string(bytes.Trim(content, "\r\n"))
	}
	return dial(cfg, secure, password, log)
}

func dial(cfg config.Etcd, secure *tls.Config, password string, log hclog.Logger) (*clientv3.Client, error) {
	c := etcdkv.ClientConfig(cfg.Endpoints...)
	c.DialTimeout = cfg.DialTimeout
	c.Username, c.Password = cfg.Username, password
	c.TLS = secure
	c.Logger = zapLogger(log, nil)
	c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(elsewhere(len(cfg.Endpoints))))
	client, err := clientv3.New(c)
	if err != nil {
		return nil, fmt.Errorf("dial etcd: %w", err)
	}
	return client, nil
}
