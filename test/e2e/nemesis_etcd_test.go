package e2e

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ask has etcd do something, and answers whether it did.
func (n *nemesis) ask(what string, do func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(n.t.Context(), callLimit)
	defer cancel()
	if err := do(ctx); err != nil {
		n.t.Logf("nemesis: %s: %v", what, err)
		return false
	}
	return true
}

func (n *nemesis) revokeLease(f *fault) bool {
	if !n.free(partEtcd) {
		return false
	}
	below := "leader/"
	if x := n.victim(nil); x != nil && n.rng.IntN(2) == 0 {
		below = "nodes/" + x.name
	}
	f.hold("of " + below)
	return n.ask("revoke the lease of "+below, func(ctx context.Context) error {
		id, _, err := n.lease(ctx, below)
		if err == nil {
			_, err = n.etcd.Client().Revoke(ctx, id)
		}
		return err
	})
}

func (n *nemesis) revokeAll(f *fault) bool {
	if !n.free(partEtcd) {
		return false
	}
	f.hold("all")
	return n.ask("revoke all leases", func(ctx context.Context) error {
		all, err := n.etcd.Client().Leases(ctx)
		if err != nil {
			return err
		}
		for _, l := range all.Leases {
			_, failed := n.etcd.Client().Revoke(ctx, l.ID)
			err = errors.Join(err, failed)
		}
		return err
	})
}

func (n *nemesis) deleteLeaderKey(f *fault) bool {
	if !n.free(partEtcd) {
		return false
	}
	return n.ask("delete the leader's key", func(ctx context.Context) error {
		_, key, err := n.lease(ctx, "leader/")
		if err != nil {
			return err
		}
		f.hold(key)
		_, err = n.etcd.Client().Delete(ctx, key)
		return err
	})
}

// member takes hold of etcd and picks its leader; -1 where it is not whole.
func (n *nemesis) member(f *fault) int {
	if !n.free(partEtcd, partSpace) {
		return -1
	}
	at := n.etcd.Leader()
	f.hold(fmt.Sprintf("member %d", at), partEtcd, partSpace)
	return at
}

func (n *nemesis) members() int { return len(n.etcd.Endpoints()) }

func (n *nemesis) killMember(f *fault) bool {
	at := n.member(f)
	if at < 0 {
		return false
	}
	n.etcd.Kill(at)
	f.mend = func() { n.etcd.Restart(at) }
	return true
}

func (n *nemesis) stopMember(f *fault) bool {
	at := n.member(f)
	if at < 0 {
		return false
	}
	n.etcd.Pause(at)
	f.mend = func() { n.etcd.Resume(at) }
	return true
}

func (n *nemesis) isolateMember(f *fault) bool {
	at := n.member(f)
	if at < 0 || n.members() == 1 {
		return false
	}
	n.etcd.Isolate(at)
	f.mend = func() { n.etcd.Mend(at) }
	return true
}

func (n *nemesis) moveMember(f *fault) bool {
	at := n.member(f)
	if at < 0 || n.members() == 1 {
		return false
	}
	to := (at + 1) % n.members()
	f.what = fmt.Sprintf("from member %d to %d", at, to)
	f.holds = nil // it is over at once
	return n.ask("move etcd's leader", func(ctx context.Context) error { return n.etcd.MoveLeader(ctx, at, to) })
}

func (n *nemesis) restartEtcd(f *fault) bool {
	if n.member(f) < 0 {
		return false
	}
	f.what = "all members"
	n.etcd.StopAll()
	f.mend = n.etcd.RestartAll
	return true
}

func (n *nemesis) compactEtcd(f *fault) bool {
	if !n.free(partEtcd, partSpace) {
		return false
	}
	f.hold("all of its past")
	return n.ask("compact etcd", n.compact)
}

func (n *nemesis) noSpace(f *fault) bool {
	if !n.free(partEtcd, partSpace) {
		return false
	}
	f.hold("the alarm is raised", partEtcd, partSpace)
	f.mend = func() {
		await(n.t, "etcd's alarm is disarmed", func(ctx context.Context) error {
			_, err := n.etcd.Client().AlarmDisarm(ctx, &clientv3.AlarmMember{})
			return err
		})
	}
	if !n.ask("raise etcd's alarm", n.etcd.Alarm) {
		f.mend() // it may have been raised
		return false
	}
	return true
}
