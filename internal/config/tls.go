package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS protects the gRPC listener and connections to other nodes. All files are
// PEM. Nothing set: plain text.
type TLS struct {
	// CertFile and KeyFile are this process's certificate and key; with them the
	// listener speaks TLS only. Default: none.
	CertFile string `koanf:"cert_file" usage:"PEM file of the certificate"`
	KeyFile  string `koanf:"key_file" usage:"PEM file of its key"`
	// CAFile has the roots to check other certificates against. With it a listener
	// demands a client certificate. Default: none; servers are then checked
	// against the host's roots, and clients need no certificate.
	CAFile string `koanf:"ca_file" usage:"PEM file of the roots; demands client certificates"`
}

// Enabled tells whether anything is set.
func (t TLS) Enabled() bool { return t != TLS{} }

// Server is the configuration of a listener, or nil for plain text. It reads
// the files. The certificate is read again for every handshake, so that a
// renewed one is used without a restart.
func (t TLS) Server() (*tls.Config, error) {
	if t.CertFile == "" {
		return nil, nil
	}
	if _, err := t.load(); err != nil {
		return nil, err
	}
	cfg := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return t.load() },
	}
	if t.CAFile != "" {
		pool, err := roots(t.CAFile)
		if err != nil {
			return nil, err
		}
		cfg.ClientCAs, cfg.ClientAuth = pool, tls.RequireAndVerifyClientCert
	}
	return cfg, nil
}

// Client is the configuration of a connection, or nil for plain text. It reads
// the files; the certificate as Server does.
func (t TLS) Client() (*tls.Config, error) {
	if !t.Enabled() {
		return nil, nil
	}
	return clientTLS(t.CAFile, t.CertFile, t.KeyFile)
}

func (t TLS) load() (*tls.Certificate, error) { return loadPair(t.CertFile, t.KeyFile) }

// Client is the configuration of a connection to etcd, or nil where nothing is
// set. It reads the files.
func (t EtcdTLS) Client() (*tls.Config, error) {
	if t == (EtcdTLS{}) {
		return nil, nil
	}
	cfg, err := clientTLS(t.CAFile, t.CertFile, t.KeyFile)
	if err != nil {
		return nil, err
	}
	cfg.ServerName = t.ServerName
	cfg.InsecureSkipVerify = t.InsecureSkipVerify
	return cfg, nil
}

func clientTLS(ca, cert, key string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pool, err := roots(ca)
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = pool
	}
	if cert != "" {
		if _, err := loadPair(cert, key); err != nil {
			return nil, err
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return loadPair(cert, key)
		}
	}
	return cfg, nil
}

func loadPair(cert, key string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("load certificate %s: %w", cert, err)
	}
	return &pair, nil
}

func roots(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("load roots: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("load roots %s: %w", file, errors.New("no certificate in it"))
	}
	return pool, nil
}
