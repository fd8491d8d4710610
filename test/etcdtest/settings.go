package etcdtest

import (
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// settings is what a member is told, in this process or another.
type settings struct {
	Name, Dir    string
	Peer, Client string // URLs
	Cluster      string
	Tick         time.Duration
	Election     time.Duration
	Quota        int64
	Fsync        bool
}

func (s settings) config() (*embed.Config, error) {
	peer, err := url.Parse(s.Peer)
	if err != nil {
		return nil, err
	}
	client, err := url.Parse(s.Client)
	if err != nil {
		return nil, err
	}
	cfg := embed.NewConfig()
	cfg.Name = s.Name
	cfg.Dir = s.Dir
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	cfg.InitialCluster = s.Cluster
	cfg.ClusterState = embed.ClusterStateFlagNew
	cfg.TickMs = uint(s.Tick.Milliseconds())
	cfg.ElectionMs = uint(s.Election.Milliseconds())
	cfg.QuotaBackendBytes = s.Quota
	cfg.UnsafeNoFsync = !s.Fsync
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	return cfg, nil
}
