package etcd

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"

	"github.com/leaderd/leaderd/internal/config"
)

const (
	// emptyPath is where a member without data says so to the others.
	emptyPath = "/leaderd/empty"
	// askEvery is how often a member without data asks the others, and askTimeout
	// how long one may take to answer.
	askEvery   = 500 * time.Millisecond
	askTimeout = 2 * time.Second
	// sayEvery is how often it says what it waits for.
	sayEvery = 10 * time.Second
)

// empty is what a member without data says of itself.
type empty struct {
	Cluster string `json:"cluster"` // InitialClusterToken
	Name    string `json:"name"`
}

// report is what another member said.
type report struct {
	from string
	// err is set where it said nothing.
	err error
	// empty is set where it has no data either.
	empty bool
	// id is that of the asking member, zero where the other knows none, and started
	// whether that member has ever served.
	id      types.ID
	started bool
}

// decision is what a member without data may do.
type decision int

const (
	wait decision = iota
	found
	join
)

// decide judges what all other members said to the member that has no data and
// would be own in a new cluster. The reason is for people.
//
// It may found a cluster only if all others say that they have no data or that it
// never served. Fewer would not do: two members that lost their data and meet while
// the third is away would begin anew, and the third, which still has everything,
// would have to forget it. For the same reason it joins only if all of them say
// that they expect it, under an identity that never served.
func decide(own types.ID, reports []report) (decision, string) {
	var known []report
	for _, r := range reports {
		switch {
		case r.err != nil:
			return wait, fmt.Sprintf("%s has not answered: %v", r.from, r.err)
		case !r.empty:
			known = append(known, r)
		}
	}
	if len(known) == 0 {
		return found, "no member has data"
	}
	for _, r := range known {
		switch {
		case r.started:
			return wait, r.from + " says that this member had data, which is lost; it waits for the others to replace it"
		case r.id == 0:
			return wait, r.from + " does not know this member; it waits to be added"
		case r.id != known[0].id:
			return wait, fmt.Sprintf("%s and %s do not agree on who this member is", known[0].from, r.from)
		}
	}
	switch {
	case known[0].id == own:
		return found, "the others are members of a new cluster"
	case len(known) < len(reports):
		return wait, "another member lost its data too"
	default:
		return join, "the others have added this member"
	}
}

// hasLog tells whether the member has data: its log of agreed changes.
func (s *Server) hasLog() (bool, error) {
	files, err := filepath.Glob(filepath.Join(s.dir, "member", "wal", "*.wal"))
	return len(files) > 0, err
}

// enter has a member without data find out whether its cluster is new, and answers
// the state with which etcd is to start. It waits for the others as long as it must;
// meanwhile it tells them on the peer listener that it has no data.
func (s *Server) enter(ctx context.Context) (state string, err error) {
	e := s.cfg.Embedded
	members, err := e.Members(s.node)
	if err != nil {
		return "", fmt.Errorf("initial_cluster%w", err)
	}
	if has, err := s.hasLog(); err != nil || has || len(members) == 1 || e.InitialClusterState != config.ClusterNew {
		return e.InitialClusterState, err
	}
	if err := s.setAside(); err != nil {
		return "", err
	}
	others, own, err := s.others(members)
	if err != nil {
		return "", err
	}
	stop, err := s.sayEmpty()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, stop()) }()

	var said string
	var saidAt time.Time
	for {
		what, why := decide(own, s.ask(ctx, others))
		switch what {
		case found:
			s.log.Info("etcd member has no data: it founds a cluster", "reason", why)
			return config.ClusterNew, nil
		case join:
			s.log.Info("etcd member has no data: it joins its cluster", "reason", why)
			return config.ClusterExisting, nil
		case wait:
		}
		if now := time.Now(); why != said && now.Sub(saidAt) > time.Second || now.Sub(saidAt) > sayEvery {
			s.log.Warn("etcd member has no data, and waits", "reason", why)
			said, saidAt = why, now
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(askEvery):
		}
	}
}

// setAside moves a database away that has no log: without one it is of no use, and
// etcd must not take it for the state of a member that joins.
func (s *Server) setAside() error {
	from, to := filepath.Join(s.dir, "member"), filepath.Join(s.dir, "member-without-log")
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.RemoveAll(to); err != nil {
		return fmt.Errorf("set data without a log aside: %w", err)
	}
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("set data without a log aside: %w", err)
	}
	s.log.Warn("etcd data without a log was set aside", "dir", to)
	return nil
}

// others are the peer URLs of all members but this one, whose identity in a new
// cluster is own.
func (s *Server) others(members []config.Member) (others map[string]string, own types.ID, err error) {
	others = map[string]string{}
	for _, m := range members {
		if m.Name != s.node {
			others[m.Name] = m.Peer.String()
			continue
		}
		urls, err := types.NewURLs([]string{m.Peer.String()})
		if err != nil {
			return nil, 0, fmt.Errorf("initial_cluster: %w", err)
		}
		own = membership.NewMember(m.Name, urls, s.cfg.Embedded.InitialClusterToken, nil).ID
		s.peer = m.Peer.String()
	}
	return others, own, nil
}

// sayEmpty answers on the peer listener, until stop, that the member has no data.
func (s *Server) sayEmpty() (stop func() error, err error) {
	listener, err := net.Listen("tcp", s.cfg.Embedded.PeerListen) //nolint:noctx // binding does not block
	if err != nil {
		return nil, err
	}
	secure, err := s.cfg.Embedded.PeerTLS.Server()
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	if secure != nil {
		listener = tls.NewListener(listener, secure)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+emptyPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		//nolint:errchkjson // two strings; and who asked asks again
		_ = json.NewEncoder(w).Encode(empty{Cluster: s.cfg.Embedded.InitialClusterToken, Name: s.node})
	})
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: askTimeout,
		// What cannot be read is told by who asked.
		ErrorLog: s.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return func() error {
		err := server.Close()
		if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}, nil
}

// ask asks all others at once.
func (s *Server) ask(ctx context.Context, others map[string]string) []report {
	client, done, err := s.peerClient()
	if err != nil {
		return []report{{from: "the configuration of TLS", err: err}}
	}
	defer done()
	reports := make([]report, 0, len(others))
	var mu sync.Mutex
	var asked sync.WaitGroup
	for name, url := range others {
		asked.Go(func() {
			r := s.askOne(ctx, client, url)
			r.from = name
			mu.Lock()
			defer mu.Unlock()
			reports = append(reports, r)
		})
	}
	asked.Wait()
	return reports
}

func (s *Server) askOne(ctx context.Context, client *http.Client, url string) report {
	if isEmpty, err := s.isEmpty(ctx, client, url); err != nil || isEmpty {
		return report{err: err, empty: isEmpty}
	}
	members, err := askMembers(ctx, client, url)
	if err != nil {
		return report{err: err}
	}
	for _, m := range members {
		for _, at := range m.PeerURLs {
			if strings.TrimSuffix(at, "/") == s.peer {
				return report{id: m.ID, started: len(m.ClientURLs) > 0}
			}
		}
	}
	return report{}
}

// isEmpty asks a member of this cluster whether it has no data.
func (s *Server) isEmpty(ctx context.Context, client *http.Client, url string) (bool, error) {
	body, err := get(ctx, client, url+emptyPath)
	if status := statusError(0); errors.As(err, &status) && status == http.StatusNotFound {
		return false, nil // so says etcd itself
	}
	if err != nil {
		return false, err
	}
	var answer empty
	if err := json.Unmarshal(body, &answer); err != nil {
		return false, err
	}
	if answer.Cluster != s.cfg.Embedded.InitialClusterToken {
		return false, fmt.Errorf("it is of another cluster, %q", answer.Cluster)
	}
	return true, nil
}

// askMembers asks a member that has data who the members are.
func askMembers(ctx context.Context, client *http.Client, url string) ([]membership.Member, error) {
	body, err := get(ctx, client, url+"/members")
	if err != nil {
		return nil, err
	}
	var members []membership.Member
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, err
	}
	if len(members) == 0 {
		return nil, errors.New("it knows no members yet")
	}
	return members, nil
}

// peerClient makes a client for questions to other members. It reads the files of
// their TLS.
func (s *Server) peerClient() (client *http.Client, done func(), err error) {
	transport := &http.Transport{DisableKeepAlives: true}
	if transport.TLSClientConfig, err = s.cfg.Embedded.PeerTLS.Client(); err != nil {
		return nil, nil, err
	}
	return &http.Client{
		Transport: transport, Timeout: askTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, transport.CloseIdleConnections, nil
}

// statusError is an answer other than 200.
type statusError int

func (e statusError) Error() string { return "it answers " + http.StatusText(int(e)) }

func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, statusError(resp.StatusCode)
	}
	return io.ReadAll(io.LimitReader(resp.Body, 1<<20))
}
