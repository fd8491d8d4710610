package etcdtest

import (
	"context"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// statusTimeout is what a member gets to tell whether it leads.
const statusTimeout = time.Second

// Leader is the index of the member that leads, or -1. Members in processes of
// their own are asked, which takes a second where one does not answer.
func (s *Server) Leader() int {
	for i, m := range s.members {
		switch {
		case m.etcd != nil && m.etcd.Server.Leader() == m.etcd.Server.MemberID():
			return i
		case m.process != nil && !m.paused && s.leads(m):
			return i
		}
	}
	return -1
}

func (s *Server) leads(m *member) bool {
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	resp, err := s.Client().Status(ctx, m.client)
	return err == nil && resp.Leader == resp.Header.GetMemberId()
}

// Stop stops member i in good order (a leader hands over). Its data stays.
func (s *Server) Stop(i int) {
	m := s.members[i]
	if m.process != nil {
		m.process.end(syscall.SIGTERM)
		m.process = nil
	}
	if m.etcd != nil {
		m.etcd.Close()
		m.etcd = nil
	}
}

// Kill stops member i as if its process had died, which it does where it has one:
// a leader hands nothing over.
func (s *Server) Kill(i int) {
	m := s.members[i]
	if m.process != nil {
		m.process.end(syscall.SIGKILL)
		m.process = nil
	}
	if m.etcd != nil {
		m.etcd.Server.HardStop()
		m.etcd.Close()
		m.etcd = nil
	}
}

// StopAll stops every member.
func (s *Server) StopAll() {
	var wg sync.WaitGroup
	for i := range s.members {
		wg.Go(func() { s.Stop(i) })
	}
	wg.Wait()
}

// Restart starts member i again (stopping it first where it runs) and waits
// until it is ready: it needs a quorum of running members for that.
func (s *Server) Restart(i int) {
	s.t.Helper()
	s.Stop(i)
	m := s.members[i]
	if err := s.launch(m); err != nil {
		s.t.Fatalf("restart etcd: %v", err)
	}
	if err := ready(m); err != nil {
		s.t.Fatalf("restart etcd: %v", err)
	}
}

// RestartAll starts every stopped member again and waits until all are ready.
func (s *Server) RestartAll() {
	s.t.Helper()
	for _, m := range s.members {
		if !m.running() {
			if err := s.launch(m); err != nil {
				s.t.Fatalf("restart etcd: %v", err)
			}
		}
	}
	for _, m := range s.members {
		if err := ready(m); err != nil {
			s.t.Fatalf("restart etcd: %v", err)
		}
	}
}

// AwaitLeader waits until a running member leads and answers its index.
func (s *Server) AwaitLeader(ctx context.Context) int {
	s.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if i := s.Leader(); i >= 0 {
			return i
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.t.Fatalf("await etcd leader: %v", context.Cause(ctx))
		}
	}
}

// Pause stops the process of member i as SIGSTOP does, until Resume: as a machine
// does whose disk hangs. Its connections stay open.
func (s *Server) Pause(i int) {
	s.t.Helper()
	s.signal(i, syscall.SIGSTOP, true)
}

// Resume has a paused member go on.
func (s *Server) Resume(i int) {
	s.t.Helper()
	s.signal(i, syscall.SIGCONT, false)
}

func (s *Server) signal(i int, what syscall.Signal, paused bool) {
	s.t.Helper()
	m := s.members[i]
	if m.process == nil {
		s.t.Fatalf("signal %s: it has no process", m.name)
	}
	if err := m.process.cmd.Process.Signal(what); err != nil {
		s.t.Fatalf("signal %s: %v", m.name, err)
	}
	m.paused = paused
}

// Isolate cuts member i off from the other members, until Mend or a restart:
// clients still reach it.
func (s *Server) Isolate(i int) { s.connect(i, false) }

// Mend ends Isolate.
func (s *Server) Mend(i int) { s.connect(i, true) }

func (s *Server) connect(i int, connected bool) {
	s.t.Helper()
	one := s.members[i]
	for _, other := range s.members {
		if other != one {
			s.link(one, other, connected)
			s.link(other, one, connected)
		}
	}
}

// link cuts or mends what m sends to and takes from the peer.
func (s *Server) link(m, peer *member, connected bool) {
	s.t.Helper()
	id := peer.id
	switch {
	case m.process != nil:
		if err := m.process.link(connected, id); err != nil {
			s.t.Fatalf("connect %s and %s: %v", m.name, peer.name, err)
		}
	case m.etcd == nil:
	case connected:
		m.etcd.Server.MendPeer(id)
	default:
		m.etcd.Server.CutPeer(id)
	}
}

// MoveLeader has member from, which leads, hand over to member to.
func (s *Server) MoveLeader(ctx context.Context, from, to int) error {
	leader, err := clientv3.New(clientv3.Config{Endpoints: []string{s.members[from].client}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer leader.Close()
	_, err = leader.MoveLeader(ctx, uint64(s.members[to].id))
	return err
}

// Alarm raises the alarm that a member raises whose space is full: nothing can be
// written until it is disarmed.
func (s *Server) Alarm(ctx context.Context) error {
	members, err := s.Client().MemberList(ctx)
	if err != nil {
		return err
	}
	_, err = etcdserverpb.NewMaintenanceClient(s.Client().ActiveConnection()).Alarm(ctx, &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: members.Members[0].GetID(), Alarm: etcdserverpb.AlarmType_NOSPACE,
	})
	return err
}
