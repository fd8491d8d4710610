package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaderd/leaderd/state"
)

const (
	// askSpace bounds one question to one member.
	askSpace = 3 * time.Second
	// keepEvery is how often a member looks after its room.
	keepEvery = 10 * time.Second
	// defragTime bounds one defragmentation, in which the member answers nobody.
	defragTime = 2 * time.Minute
)

// Space tells how full the etcd is that a client is connected to: of its members that
// answer, the one that is fullest. It is an error if none does.
func Space(ctx context.Context, client *clientv3.Client) (state.Space, error) {
	var out state.Space
	var errs []error
	for _, endpoint := range client.Endpoints() {
		ctx, cancel := context.WithTimeout(ctx, askSpace)
		s, err := client.Status(ctx, endpoint)
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("status of %s: %w", endpoint, err))
			continue
		}
		out.Used = max(out.Used, s.DbSizeInUse)
		if q := s.DbSizeQuota; q > 0 && (out.Quota == 0 || q < out.Quota) {
			out.Quota = q
		}
	}
	if out.Used == 0 {
		return out, fmt.Errorf("space of etcd: %w", errors.Join(errs...))
	}
	ctx, cancel := context.WithTimeout(ctx, askSpace)
	defer cancel()
	full, err := alarms(ctx, client)
	if err != nil {
		return out, fmt.Errorf("space of etcd: %w", err)
	}
	out.Full = len(full) > 0
	return out, nil
}

// alarms are those by which etcd refuses writes for want of room.
func alarms(ctx context.Context, client *clientv3.Client) (full []*etcdserverpb.AlarmMember, err error) {
	res, err := client.AlarmList(ctx)
	if err != nil {
		return nil, fmt.Errorf("list alarms: %w", err)
	}
	for _, a := range res.Alarms {
		if a.GetAlarm() == etcdserverpb.AlarmType_NOSPACE {
			full = append(full, a)
		}
	}
	return full, nil
}

// Compact has etcd forget what was superseded, so that its room can be used again.
// Only after Ready.
func (s *Server) Compact(ctx context.Context) error {
	status, err := s.client.Status(ctx, s.client.Endpoints()[0])
	if err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	_, err = s.client.Compact(ctx, status.Header.GetRevision(), clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compact etcd: %w", err)
	}
	return nil
}

// KeepRoom looks after the member's room until ctx ends. etcd measures its quota by
// the file, which never shrinks by itself; so where the file has grown near the quota
// and is mostly free it is written anew, and where etcd refuses writes (NOSPACE) it is
// compacted and written anew, and takes writes again if that made room. Meanwhile the
// member answers nobody, for some seconds a GiB. Only after Ready.
func (s *Server) KeepRoom(ctx context.Context) error {
	for {
		timer := time.NewTimer(keepEvery + rand.N(keepEvery/2)) // not all members at once
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		if err := s.keepRoom(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("etcd's room could not be looked after; trying again", "err", err)
		}
	}
}

func (s *Server) keepRoom(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, defragTime)
	defer cancel()
	endpoint := s.client.Endpoints()[0]
	status, err := s.client.Status(ctx, endpoint)
	if err != nil {
		return err
	}
	full, err := alarms(ctx, s.client)
	if err != nil {
		return err
	}
	near := status.DbSize > status.DbSizeQuota/100*85 && status.DbSizeInUse < status.DbSize/2
	if len(full) == 0 && !near {
		return nil
	}
	if len(full) > 0 {
		s.log.Error("etcd is full and refuses writes (NOSPACE); compacting and defragmenting it", "size", status.DbSize, "in_use", status.DbSizeInUse, "quota", status.DbSizeQuota)
		if err := s.Compact(ctx); err != nil {
			return err
		}
	}
	if _, err := s.client.Defragment(ctx, endpoint); err != nil {
		return fmt.Errorf("defragment: %w", err)
	}
	after, err := s.client.Status(ctx, endpoint)
	if err != nil {
		return err
	}
	s.log.Info("etcd was defragmented", "size_before", status.DbSize, "size", after.DbSize, "quota", after.DbSizeQuota)
	if after.DbSize > after.DbSizeQuota/100*90 {
		if len(full) > 0 {
			s.log.Error("etcd is still full: history is removed, which takes its time; otherwise raise etcd.embedded.quota_bytes and restart", "size", after.DbSize, "quota", after.DbSizeQuota)
		}
		return nil
	}
	for _, a := range full {
		if a.GetMemberID() != after.Header.GetMemberId() {
			continue // that one looks after itself
		}
		if _, err := s.client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: a.GetMemberID(), Alarm: etcdserverpb.AlarmType_NOSPACE}); err != nil {
			return fmt.Errorf("take the alarm back: %w", err)
		}
		s.log.Warn("etcd takes writes again")
	}
	return nil
}
