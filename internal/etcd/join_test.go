package etcd

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"

	"github.com/leaderd/leaderd/internal/config"
	"github.com/leaderd/leaderd/state/kv"
)

func TestDecide(t *testing.T) {
	const own, other = types.ID(1), types.ID(2)
	away := report{err: errors.New("refused")}
	isEmpty := report{empty: true}
	expects := func(id types.ID) report { return report{id: id} }
	had := func(id types.ID) report { return report{id: id, started: true} }
	for name, c := range map[string]struct {
		reports []report
		want    decision
	}{
		"first start":                            {[]report{isEmpty, isEmpty}, found},
		"first start, one is away":               {[]report{isEmpty, away}, wait},
		"first start, the others are ahead":      {[]report{expects(own), expects(own)}, found},
		"first start, one is ahead":              {[]report{expects(own), isEmpty}, found},
		"ahead, and away":                        {[]report{expects(own), away}, wait},
		"lost":                                   {[]report{had(own), had(own)}, wait},
		"lost, one has not heard that it served": {[]report{expects(own), had(own)}, wait},
		"lost, and one is away":                  {[]report{had(own), away}, wait},
		"removed":                                {[]report{{}, {}}, wait},
		"removed, not all know":                  {[]report{{}, had(own)}, wait},
		"added":                                  {[]report{expects(other), expects(other)}, join},
		"added, not all know":                    {[]report{expects(other), {}}, wait},
		"added, one is away":                     {[]report{expects(other), away}, wait},
		"added, one lost its data":               {[]report{expects(other), isEmpty}, wait},
		"added twice":                            {[]report{expects(other), expects(3)}, wait},
		"added, and served since":                {[]report{expects(other), had(other)}, wait},
		"lost once more":                         {[]report{had(other), had(other)}, wait},
		"two lost":                               {[]report{isEmpty, had(own)}, wait},
		"two lost, the third is away":            {[]report{isEmpty, away}, wait},
	} {
		t.Run(name, func(t *testing.T) {
			got, why := decide(own, c.reports)
			require.Equal(t, c.want, got, why)
			require.NotEmpty(t, why)
		})
	}
}

// TestDecideNeverForgets: whoever once served neither founds a cluster nor joins
// one while anybody who knows that is asked, or nobody knows.
func TestDecideNeverForgets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reports := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) report {
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				return report{err: errors.New("away")}
			case 1:
				return report{empty: true}
			default:
				return report{id: types.ID(rapid.Uint64Range(0, 3).Draw(t, "id")), started: rapid.Bool().Draw(t, "started")}
			}
		}), 1, 5).Draw(t, "reports")
		what, _ := decide(1, reports)
		for _, r := range reports {
			if what != wait && (r.err != nil || r.started) {
				t.Fatalf("%v decided on %+v", what, reports)
			}
			if what == found && r.id > 1 || what == join && r.id < 2 {
				t.Fatalf("%v decided on %+v", what, reports)
			}
		}
	})
}

// trio are three members whose data can be lost.
type trio struct {
	t     *testing.T
	cfg   [3]func() *Server
	dirs  [3]string
	mu    sync.Mutex
	log   bytes.Buffer
	alive [3]func() error
	now   [3]*Server
}

func (c *trio) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(p)
}

func (c *trio) said(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Contains(c.log.Bytes(), []byte(text))
}

func newTrio(t *testing.T, secure config.TLS) *trio {
	c := &trio{t: t}
	peers := freePorts(t, 3)
	var members []string
	for i, p := range peers {
		members = append(members, fmt.Sprintf("n%d=%s://%s", i, config.Embedded{PeerTLS: secure}.PeerScheme(), p))
	}
	log := hclog.New(&hclog.LoggerOptions{Output: c, Level: hclog.Info})
	for i := range 3 {
		c.dirs[i] = t.TempDir()
		cfg := settings(t)
		cfg.Embedded.PeerListen, cfg.Embedded.InitialCluster, cfg.Embedded.PeerTLS = peers[i], members, secure
		c.cfg[i] = func() *Server { return New(fmt.Sprintf("n%d", i), c.dirs[i], cfg, log.Named(fmt.Sprintf("n%d", i))) }
	}
	t.Cleanup(func() {
		for i := range 3 {
			c.stop(i)
		}
		if t.Failed() {
			t.Log(c.log.String())
		}
	})
	return c
}

func (c *trio) start(i int) {
	s := c.cfg[i]()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	c.now[i] = s
	c.alive[i] = func() error {
		cancel()
		return <-ended
	}
}

func (c *trio) stop(i int) {
	if c.alive[i] != nil {
		require.NoError(c.t, c.alive[i]())
		c.alive[i] = nil
	}
}

func (c *trio) lose(i int) {
	c.stop(i)
	require.NoError(c.t, os.RemoveAll(filepath.Join(c.dirs[i], "etcd")))
}

func (c *trio) put(i int, key string) {
	_, err := c.now[i].KV().Txn(c.t.Context(), kv.Txn{Then: []kv.Op{kv.Put(key, []byte("v"), 0)}})
	require.NoError(c.t, err)
}

// keys are what a member itself has, whatever others say.
func (c *trio) keys(i int) (keys []string) {
	got, err := c.now[i].Client().Get(c.t.Context(), "/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(c.t, err)
	for _, k := range got.Kvs {
		keys = append(keys, string(k.Key))
	}
	return keys
}

// TestLostDataIsReplaced: a member that comes back without its data is given a new
// identity by the others and has all of theirs, as often as it takes.
func TestLostDataIsReplaced(t *testing.T) {
	t.Run("plain", func(t *testing.T) { loseData(t, config.TLS{}) })
	t.Run("TLS", func(t *testing.T) { loseData(t, certificates(t)) })
}

func loseData(t *testing.T, secure config.TLS) {
	c := newTrio(t, secure)
	for i := range 3 {
		c.start(i)
	}
	var want []string
	for round := range 2 {
		for _, s := range c.now {
			<-s.Ready()
		}
		key := fmt.Sprintf("/%d", round)
		c.put(0, key)
		want = append(want, key)
		c.lose(2)
		c.put(1, key+"-without")
		want = append(want, key+"-without")
		c.start(2)
		<-c.now[2].Ready()
		require.Equal(t, want, c.keys(2))
		require.Len(t, c.now[2].etcd.Server.Cluster().Members(), 3)
	}
	// A majority that needs the new member.
	c.stop(0)
	c.put(2, "/last")
}

// TestPeersCheckEachOther: with TLS a member takes nobody for one without a
// certificate of its authority, neither before it has data nor after.
func TestPeersCheckEachOther(t *testing.T) {
	secure := certificates(t)
	strange := config.TLS{CAFile: secure.CAFile}
	c := newTrio(t, secure)
	c.start(0)
	url := "https://" + c.now[0].cfg.Embedded.PeerListen
	ask := func(as config.TLS, path string) error {
		s := New("x", t.TempDir(), config.Etcd{Embedded: config.Embedded{PeerTLS: as}}, hclog.NewNullLogger())
		client, done, err := s.peerClient()
		require.NoError(t, err)
		defer done()
		_, err = get(t.Context(), client, url+path)
		return err
	}
	require.Eventually(t, func() bool { return ask(secure, emptyPath) == nil }, patience, tick)
	require.ErrorContains(t, ask(strange, emptyPath), "certificate required")
	c.start(1)
	c.start(2)
	<-c.now[0].Ready()
	require.NoError(t, ask(secure, "/members"))
	require.ErrorContains(t, ask(strange, "/members"), "certificate required")
}

// certificates makes an authority, and a certificate of it for 127.0.0.1.
func certificates(t *testing.T) config.TLS {
	t.Helper()
	dir := t.TempDir()
	file := config.TLS{CAFile: filepath.Join(dir, "ca"), CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key")}
	write := func(path, kind string, der []byte) {
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	}
	now := time.Now()
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: root.NotBefore, NotAfter: root.NotAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, root, root, rootKey.Public(), rootKey)
	require.NoError(t, err)
	write(file.CAFile, "CERTIFICATE", der)
	der, err = x509.CreateCertificate(rand.Reader, leaf, root, leafKey.Public(), rootKey)
	require.NoError(t, err)
	write(file.CertFile, "CERTIFICATE", der)
	der, err = x509.MarshalECPrivateKey(leafKey)
	require.NoError(t, err)
	write(file.KeyFile, "EC PRIVATE KEY", der)
	return file
}

// TestTwoLostFoundNoCluster: two members without data are a majority, and must not
// begin anew while the third one, which has everything, is away. When it is back,
// they still have nothing to go on with, and say so.
func TestTwoLostFoundNoCluster(t *testing.T) {
	c := newTrio(t, config.TLS{})
	for i := range 3 {
		c.start(i)
	}
	for _, s := range c.now {
		<-s.Ready()
	}
	c.put(0, "/kept")
	c.stop(0)
	c.lose(1)
	c.lose(2)
	c.start(1)
	c.start(2)
	require.Eventually(t, func() bool { return c.said("n0 has not answered") }, patience, tick)
	c.start(0)
	require.Eventually(t, func() bool { return c.said("n0 says that this member had data, which is lost") }, patience, tick)
	for i, s := range c.now {
		select {
		case <-s.Ready():
			t.Fatalf("n%d serves", i)
		default:
		}
	}
	require.NoFileExists(t, filepath.Join(c.dirs[1], "etcd", "member", "wal"))
	require.NoFileExists(t, filepath.Join(c.dirs[2], "etcd", "member", "wal"))
}

// TestDatabaseWithoutLogIsSetAside: etcd would take it for its state.
func TestDatabaseWithoutLogIsSetAside(t *testing.T) {
	c := newTrio(t, config.TLS{})
	for i := range 3 {
		c.start(i)
	}
	for _, s := range c.now {
		<-s.Ready()
	}
	c.put(0, "/kept")
	c.stop(2)
	member := filepath.Join(c.dirs[2], "etcd", "member")
	require.NoError(t, os.RemoveAll(filepath.Join(member, "wal")))
	c.start(2)
	<-c.now[2].Ready()
	require.Equal(t, []string{"/kept"}, c.keys(2))
	require.FileExists(t, filepath.Join(c.dirs[2], "etcd", "member-without-log", "snap", "db"))
}
