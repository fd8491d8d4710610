package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// lookEvery is how often etcd's leader looks for members that lost their data.
	lookEvery = 2 * time.Second
	// changeTimeout bounds one change of the membership.
	changeTimeout = 10 * time.Second
)

// replaceLost replaces members that lost their data, until ctx is done; see
// replaceOne. Only the member that leads does it.
func (s *Server) replaceLost(ctx context.Context) {
	members, err := s.cfg.Embedded.Members(s.node)
	if err != nil || len(members) == 1 {
		return // the configuration is valid: memberConfig has read it
	}
	others, _, err := s.others(members)
	if err != nil {
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s.etcd.Server.Leader() != s.etcd.Server.MemberID() {
			continue
		}
		if err := s.replaceOne(ctx, others); err != nil && ctx.Err() == nil {
			s.log.Warn("etcd member without data is not replaced yet", "err", err)
		}
	}
}

// replaceOne looks for a member that says it has no data though it once had, and
// gives it a new identity, under which it joins: what it promised under the old one
// it has forgotten, so that may count no more. All other members must answer, and
// etcd itself makes the change by agreement of a majority, in which the old identity
// counts as absent; so nothing that was acknowledged can be lost.
func (s *Server) replaceOne(ctx context.Context, others map[string]string) error {
	lost, silent := s.withoutData(ctx, others)
	if len(lost) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	list, err := s.client.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("list members: %w", err)
	}
	// One that never served, or was added for just this, joins by itself.
	lost = slices.DeleteFunc(lost, func(name string) bool {
		known := memberAt(list, others[name])
		return known != nil && len(known.GetClientURLs()) == 0
	})
	switch {
	case len(lost) == 0:
		return nil
	case len(lost) > 1:
		return fmt.Errorf("members %s lost their data, and only one at a time can be replaced", strings.Join(lost, ", "))
	case silent != nil:
		return fmt.Errorf("member %s: %w", lost[0], silent)
	}
	name := lost[0]
	if known := memberAt(list, others[name]); known != nil {
		s.log.Warn("etcd member lost its data: it is replaced", "member", name, "id", fmt.Sprintf("%x", known.GetID()))
		if _, err := s.client.MemberRemove(ctx, known.GetID()); err != nil {
			return fmt.Errorf("remove member %s: %w", name, err)
		}
	}
	if _, err := s.client.MemberAdd(ctx, []string{others[name]}); err != nil {
		return fmt.Errorf("add member %s: %w", name, err)
	}
	s.log.Info("etcd member without data may join", "member", name)
	return nil
}

// withoutData are the members that say they have no data, and an error if not all
// answer: then a majority may have forgotten, which no new identity mends.
func (s *Server) withoutData(ctx context.Context, others map[string]string) (lost []string, silent error) {
	client, done, err := s.peerClient()
	if err != nil {
		s.log.Warn("etcd members cannot be asked whether they have data", "err", err)
		return nil, nil
	}
	defer done()
	for name, url := range others {
		isEmpty, err := s.isEmpty(ctx, client, url)
		switch {
		case err != nil:
			silent = fmt.Errorf("%s has to answer first: %w", name, err)
		case isEmpty:
			lost = append(lost, name)
		}
	}
	slices.Sort(lost)
	return lost, silent
}

func memberAt(list *clientv3.MemberListResponse, url string) *etcdserverpb.Member {
	for _, m := range list.Members {
		for _, at := range m.GetPeerURLs() {
			if strings.TrimSuffix(at, "/") == url {
				return m
			}
		}
	}
	return nil
}
