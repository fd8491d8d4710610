package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// States of an embedded member's cluster.
const (
	ClusterNew      = "new"
	ClusterExisting = "existing"
)

// Etcd is where the truth is kept.
type Etcd struct {
	// Endpoints are the client URLs of an external etcd, such as
	// https://etcd-0:2379; without a scheme http is meant, or https where TLS is
	// set. Default: none, which makes a control node run a member of its own.
	Endpoints []string `koanf:"endpoints" usage:"client URLs of an external etcd; none: run a member of its own"`

	// Prefix of all keys; it begins and ends with a slash. Clusters that share an
	// etcd need prefixes of which none begins with another. Default: /leaderd/.
	Prefix string `koanf:"prefix" usage:"prefix of all keys"`

	// Username to authenticate with at the external etcd. Default: none.
	Username string `koanf:"username" usage:"user at the external etcd"`

	// Password of Username. PasswordFile keeps it out of process lists.
	// Default: none.
	Password Secret `koanf:"password" usage:"its password; prefer etcd-password-file"`

	// PasswordFile has the password; line ends around it are cut off. Default:
	// none.
	PasswordFile string `koanf:"password_file" usage:"file with its password"`

	// TLS to the external etcd.
	TLS EtcdTLS `koanf:"tls"`

	// DialTimeout bounds connecting and authenticating, 100ms–1m. Default: 5s.
	DialTimeout time.Duration `koanf:"dial_timeout" usage:"bound on connecting and authenticating"`

	// Embedded is the member that the node runs where there are no Endpoints.
	Embedded Embedded `koanf:"embedded"`
}

// EtcdTLS is TLS to an external etcd; unset altogether, https endpoints are
// checked against the host's roots.
type EtcdTLS struct {
	// CAFile has the roots to check etcd's certificate against, PEM.
	// Default: the host's.
	CAFile string `koanf:"ca_file" usage:"PEM file of the roots for etcd's certificate"`
	// CertFile and KeyFile are this client's certificate and key, PEM. Default:
	// none.
	CertFile string `koanf:"cert_file" usage:"PEM file of the client certificate for etcd"`
	KeyFile  string `koanf:"key_file" usage:"PEM file of the client key for etcd"`
	// ServerName to expect in etcd's certificate. Default: the endpoint's host.
	ServerName string `koanf:"server_name" usage:"name to expect in etcd's certificate"`
	// InsecureSkipVerify accepts any certificate: for trials only. Default: false.
	InsecureSkipVerify bool `koanf:"insecure_skip_verify" usage:"accept any certificate of etcd"`
}

// Embedded is an etcd member inside the process. Its client listener has neither TLS
// nor passwords: keep it on loopback.
type Embedded struct {
	// ClientListen is the host:port of the member's client listener. The node
	// itself uses it, so loopback is enough. Default: 127.0.0.1:7402.
	ClientListen string `koanf:"client_listen" usage:"host:port of the embedded etcd's client listener"`

	// PeerListen is the host:port at which other members reach this one.
	// Default: 127.0.0.1:7403.
	PeerListen string `koanf:"peer_listen" usage:"host:port of the embedded etcd's peer listener"`

	// PeerTLS protects the traffic between members: with it each proves to be of the
	// same authority, and the URLs in InitialCluster are https. It is for a new
	// cluster: the members of one remember each other's URLs. All three files, or
	// none; renewed ones are used without a restart. Default: none, plain text.
	PeerTLS TLS `koanf:"peer_tls"`

	// InitialCluster names all members of a new cluster, this one included, as
	// name=URL, where name is a node's name and URL its peer URL, such as
	// n1=http://10.0.0.1:7403. Default: this node alone.
	InitialCluster []string `koanf:"initial_cluster" usage:"members of the embedded etcd as name=peer URL"`

	// InitialClusterState is new for a member that finds out by itself whether its
	// cluster is: without data it founds one only if all others say that they have
	// none either, and joins where they have replaced it because its data was lost.
	// It is existing for a member that an operator has added; that one does not ask.
	// A member that has data ignores it. Default: new.
	InitialClusterState string `koanf:"initial_cluster_state" usage:"new or existing"`

	// InitialClusterToken tells clusters apart that might meet by mistake.
	// Default: leaderd.
	InitialClusterToken string `koanf:"initial_cluster_token" usage:"tells clusters apart that might meet by mistake"`

	// QuotaBytes is the greatest size of the database, 16MiB–8GiB. Default: 2GiB.
	QuotaBytes Bytes `koanf:"quota_bytes" usage:"greatest size of the embedded etcd's database"`

	// CompactionRetention is for how long superseded revisions are kept, 1m–24h.
	// leaderd reads none older than a few seconds, and at 10,000 writes a second
	// each minute costs some hundred MiB of memory. Default: 5m.
	CompactionRetention time.Duration `koanf:"compaction_retention" usage:"for how long superseded revisions are kept"`
}

func defaultEtcd() Etcd {
	return Etcd{
		Prefix:      "/leaderd/",
		DialTimeout: 5 * time.Second,
		Embedded: Embedded{
			ClientListen:        "127.0.0.1:7402",
			PeerListen:          "127.0.0.1:7403",
			InitialClusterState: ClusterNew,
			InitialClusterToken: "leaderd",
			QuotaBytes:          2 * GiB,
			CompactionRetention: 5 * time.Minute,
		},
	}
}

// Member is one entry of Embedded.InitialCluster.
type Member struct {
	Name string
	Peer url.URL
}

// PeerScheme is that of members' peer URLs.
func (e Embedded) PeerScheme() string {
	if e.PeerTLS.Enabled() {
		return "https"
	}
	return "http"
}

// Members parses InitialCluster; without one it is node alone, reached where it
// listens.
func (e Embedded) Members(node string) ([]Member, error) {
	scheme := e.PeerScheme()
	if len(e.InitialCluster) == 0 {
		return []Member{{Name: node, Peer: url.URL{Scheme: scheme, Host: e.PeerListen}}}, nil
	}
	var out []Member
	for i, entry := range e.InitialCluster {
		name, raw, ok := strings.Cut(entry, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("[%d]: %q is not name=URL", i, entry)
		}
		u, err := url.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %q: %w", i, entry, err)
		}
		if u.Scheme != scheme || u.Port() == "" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" {
			return nil, fmt.Errorf("[%d]: %q is not an %s://host:port URL, as etcd.embedded.peer_tls has it", i, raw, scheme)
		}
		u.Path = ""
		out = append(out, Member{Name: name, Peer: *u})
	}
	return out, nil
}
