package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"
)

// Authority signs certificates of one cluster. Its own is ca.crt in its folder.
type Authority struct {
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

// NewAuthority makes an authority whose files are in dir.
func NewAuthority(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &Authority{dir: dir, key: key}
	template := certificate("cluster", "")
	template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := a.write("ca", a.pem, key); err != nil {
		return nil, err
	}
	return a, a.serviceAccounts()
}

// File is the path of a file of the authority.
func (a *Authority) File(name string) string { return filepath.Join(a.dir, name) }

// Issue writes NAME.crt and NAME.key, for servers and clients alike, valid for
// hosts (names or addresses). Kubernetes takes commonName for the user and
// organization for the group.
func (a *Authority) Issue(name, commonName, organization string, hosts ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := certificate(commonName, organization)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	return a.write(name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key)
}

// Kubeconfig issues a certificate for a user and answers a file with which
// programs are that user at the server.
func (a *Authority) Kubeconfig(name, server, user, group string) (string, error) {
	if err := a.Issue(name, user, group); err != nil {
		return "", err
	}
	cert, err := os.ReadFile(a.File(name + ".crt"))
	if err != nil {
		return "", err
	}
	key, err := os.ReadFile(a.File(name + ".key"))
	if err != nil {
		return "", err
	}
	text := base64.StdEncoding.EncodeToString
	content, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "it",
		"clusters": []any{map[string]any{"name": "it", "cluster": map[string]any{"server": server, "certificate-authority-data": text(a.pem)}}},
		"users":    []any{map[string]any{"name": "it", "user": map[string]any{"client-certificate-data": text(cert), "client-key-data": text(key)}}},
		"contexts": []any{map[string]any{"name": "it", "context": map[string]any{"cluster": "it", "user": "it"}}},
	})
	if err != nil {
		return "", err
	}
	file := a.File(name + ".kubeconfig")
	return file, os.WriteFile(file, content, 0o600)
}

// serviceAccounts writes the keys with which tokens of pods are signed and checked.
func (a *Authority) serviceAccounts() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := a.write("accounts", nil, key); err != nil {
		return err
	}
	return os.WriteFile(a.File("accounts.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o600)
}

func (a *Authority) write(name string, cert []byte, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if cert != nil {
		if err := os.WriteFile(a.File(name+".crt"), cert, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(a.File(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

func certificate(commonName, organization string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(fmt.Sprintf("no random numbers: %v", err)) // documented never to happen
	}
	subject := pkix.Name{CommonName: commonName}
	if organization != "" {
		subject.Organization = []string{organization}
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject, BasicConstraintsValid: true,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(7 * 24 * time.Hour),
	}
}
