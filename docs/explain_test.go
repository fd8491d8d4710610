package docs_test

import (
	"bytes"
	"context"
	"flag"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/leaderd/leaderd/internal/api"
	"github.com/leaderd/leaderd/internal/cli"
	"github.com/leaderd/leaderd/internal/ledger"
	"github.com/leaderd/leaderd/planner"
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
	"github.com/leaderd/leaderd/state/kv"
	"github.com/leaderd/leaderd/state/memkv"
	"github.com/leaderd/leaderd/state/store"
)

// story is the cluster that docs/explain.md tells of.
type story struct {
	db      kv.KV
	address string
	jobs    leaderdv1.JobServiceClient
	now     time.Time // read by the API between requests alone
}

type leads struct{}

func (leads) Leader() (string, int64) { return "n1", 7 }

// nobody leads that could be asked what waits.
type nobody struct{}

func (nobody) ListWaiting(context.Context, *workerv1.ListWaitingRequest) (*workerv1.ListWaitingResponse, error) {
	return nil, api.ErrNoLeader
}

// tell serves the API, of a job with a past, until the test ends.
func tell(t *testing.T) *story {
	t.Helper()
	db := memkv.New()
	st, err := store.New(db, store.Config{})
	require.NoError(t, err)
	s := &story{db: db}
	cache, nodes, catalog := st.JobsCache(), st.NodesCache(), planner.NewCatalog()
	server, err := api.New(api.Config{
		Node: "n1", Reader: st, Lister: cache, Versions: st, Putter: st, Pauser: st, Triggerer: st, Submitter: st, Canceller: st, Repeater: st, Backfills: st, Calendars: st, Checkpoint: st, Runs: st, DeadLetters: st, Circuits: st, Watermark: st,
		Leadership: leads{}, Nodes: nodes, Jobs: catalog, Wall: func() time.Time { return s.now }, Queue: nobody{}, Holders: st,
	})
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	rpc := grpc.NewServer()
	server.Register(rpc)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 3)
	go func() { done <- rpc.Serve(listener) }()
	for _, run := range []func(context.Context) error{cache.Run, nodes.Run} {
		go func() { done <- run(ctx) }()
	}
	s.address = listener.Addr().String()
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	s.jobs = leaderdv1.NewJobServiceClient(conn)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		rpc.Stop()
		cancel()
		for range cap(done) {
			require.NoError(t, <-done)
		}
		st.Close()
		db.Close()
	})
	s.past(t)
	_, err = st.Register(t.Context(), state.Node{Name: "n1", Control: true, Executor: true, Capacity: 8}, time.Hour)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(nodes.Nodes()) == 1 }, 10*time.Second, time.Millisecond)
	return s
}

func clock(text string) time.Time {
	at, err := time.Parse(time.TimeOnly, text)
	if err != nil {
		panic(err)
	}
	return time.Date(2026, 11, 30, at.Hour(), at.Minute(), at.Second(), 0, time.UTC)
}

// past is what happened to the job before 12:50.
func (s *story) past(t *testing.T) {
	t.Helper()
	const name = "namespaces/default/jobs/backup"
	as := func(actor, at string) context.Context {
		s.now = clock(at)
		return metadata.AppendToOutgoingContext(t.Context(), api.ActorMetadata, actor)
	}
	put := func(ctx context.Context, schedule, reason string) {
		_, err := s.jobs.UpdateJob(ctx, &leaderdv1.UpdateJobRequest{AllowMissing: true, Reason: reason, Job: &leaderdv1.Job{
			Name: name, Spec: &leaderdv1.JobSpec{
				Schedules: []string{schedule}, TimeZone: "Europe/Berlin", Target: &leaderdv1.JobSpec_Noop{Noop: &leaderdv1.NoOp{}},
			},
		}})
		require.NoError(t, err)
	}
	put(as("alice", "08:50:00"), "0,30 * * * *", "")
	ran := func(at string, late, took time.Duration, end state.RunState) state.Record {
		due := clock(at)
		return state.Record{State: end, Attempts: []state.Attempt{{
			Number: 1, Node: "n1", Token: 4711, Term: 7, Claimed: due.Add(-20 * time.Millisecond), Started: due.Add(late),
			Ended: due.Add(late + took), State: end, HasCode: true,
		}}, Recorded: due.Add(late + took)}
	}
	s.record(t, 1, "09:00:00", ran("09:00:00", 4*time.Millisecond, 41*time.Minute, state.StateSucceeded))
	s.record(t, 1, "09:30:00", state.Record{State: state.StateSkipped, Reason: state.ReasonOverlap, Recorded: clock("09:30:00")})
	s.record(t, 1, "10:00:00", state.Record{State: state.StateMissed, Reason: state.ReasonOutage, Until: clock("11:00:00"), Count: 3, Recorded: clock("11:02:00")})
	_, err := s.jobs.PauseJob(as("bob", "11:10:00"), &leaderdv1.PauseJobRequest{Name: name, Reason: "disk swap"})
	require.NoError(t, err)
	_, err = s.jobs.ResumeJob(as("bob", "12:05:00"), &leaderdv1.ResumeJobRequest{Name: name})
	require.NoError(t, err)
	s.record(t, 3, "12:30:00", ran("12:30:00", 2*time.Millisecond, 9*time.Minute, state.StateSucceeded))
	put(as("alice", "12:40:00"), "0 * * * *", "once an hour is enough")
	s.now = clock("12:50:00")
	value, err := proto.Marshal(&statev1.Watermark{Instant: codec.Micros(s.now), Written: codec.Micros(s.now), Term: 7, Jobs: 1 << 40})
	require.NoError(t, err)
	s.put(t, "timeline/watermark", value)
}

func (s *story) record(t *testing.T, generation int64, at string, rec state.Record) {
	t.Helper()
	rec.Generation, rec.Due, rec.Shards = generation, clock(at), 1
	s.put(t, "history/default/backup/"+string(state.SlotRunID(rec.Due)), codec.MarshalRecord(&rec))
}

func (s *story) put(t *testing.T, key string, value []byte) {
	t.Helper()
	_, err := s.db.Txn(t.Context(), kv.Txn{Then: []kv.Op{kv.Put(store.DefaultPrefix+key, value, 0)}})
	require.NoError(t, err)
}

var transcript = regexp.MustCompile("(?ms)^```text\n(\\$ leaderd job .*?)^```$")

var update = flag.Bool("update", false, "write what the commands of docs/explain.md print into the page")

// TestExplainWalkThrough carries out every command of docs/explain.md.
func TestExplainWalkThrough(t *testing.T) {
	p := readPage(t, "docs/explain.md")
	s := tell(t)
	ran := 0
	got := transcript.ReplaceAllStringFunc(p.text, func(block string) string {
		var out strings.Builder
		for line := range strings.Lines(transcript.FindStringSubmatch(block)[1]) {
			command, ok := strings.CutPrefix(line, "$ leaderd ")
			if !ok {
				continue
			}
			if out.Len() > 0 {
				out.WriteString("\n")
			}
			var stdout, stderr bytes.Buffer
			args := append(arguments(command), "--address", s.address)
			code := cli.Main(t.Context(), cli.Deps{
				Environ: []string{}, Stdin: strings.NewReader(simulated(p)), Stdout: &stdout, Stderr: &stderr,
			}, args)
			require.Zero(t, code, "%s: %s", line, &stderr)
			out.WriteString(line + stdout.String())
			ran++
		}
		return "```text\n" + out.String() + "```"
	})
	require.GreaterOrEqual(t, ran, 5)
	if *update {
		require.NoError(t, os.WriteFile("explain.md", []byte(got), 0o600))
		return
	}
	require.Equal(t, p.text, got)
}

// simulated is the page's first YAML, without the line that says what it is.
func simulated(p page) string {
	if len(p.yaml) == 0 {
		return ""
	}
	return p.yaml[0]
}

// arguments takes a command line apart as a shell would, as far as pages need it.
func arguments(line string) (out []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}

var reasonConstant = regexp.MustCompile(`(?m)^(?:\t|const )Reason[A-Za-z]+ *= "([a-z_]+)"`)

func TestEveryReasonIsExplained(t *testing.T) {
	table := map[string][]string{}
	for _, row := range rows(readPage(t, "docs/explain.md").section(t, "## Reasons")) {
		require.Len(t, row, 3)
		table[unquoted(row[0])] = row
	}
	known := map[string]bool{}
	for _, r := range ledger.Reasons() {
		known[r.Name] = true
		require.Equal(t, []string{"`" + r.Name + "`", r.Means, r.Do}, table[r.Name])
		delete(table, r.Name)
	}
	require.Empty(t, table, "reasons that do not exist")
	for _, file := range []string{"run.go", "retry.go", "circuit.go"} {
		source, err := os.ReadFile(filepath.Join(root, "state", file))
		require.NoError(t, err)
		constants := reasonConstant.FindAllStringSubmatch(string(source), -1)
		require.NotEmpty(t, constants)
		for _, m := range constants {
			require.True(t, known[m[1]], "package ledger explains no reason %s", m[1])
		}
	}
}
