package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
)

// maxSpecFile is how much of a spec is read of standard input.
const maxSpecFile = 4 << 20

// submitFlags are those of run submit.
type submitFlags struct {
	ns      namespace
	spec    string
	at      string
	in      string
	file    string
	data    string
	key     string
	keyTTL  time.Duration
	limit   string
	overlap bool
	reason  string
	wait    bool
	result  bool
	f       format
}

func runSubmit(d Deps, o *dialer) *cobra.Command {
	var q submitFlags
	c := &cobra.Command{
		Use:   "submit [JOB]",
		Short: "Ask for a run of a job or of a spec, now or later, with something to work on",
		Long: `Ask for a run of a job, now or later, with something to work on. The command ends
when the wish is durable, or, with --wait, when the run has its verdict: its exit
status is then 1 unless the run succeeded.

With -f it is a run of what the file says: a job file with one job, or a spec alone. A
job is made for this one run, and goes some time after it. JOB, or the file's name,
names it; without either a name is made up.`,
		Example: `  leaderd run submit send-invoice --payload order-4711.json --key order-4711
  leaderd run submit remind --in 3d --data '{"user": 17}'
  leaderd run submit resize --payload photo.jpg --wait --result > small.jpg
  leaderd run submit -f reindex.yaml --wait`,
		Args: func(cmd *cobra.Command, args []string) error {
			if q.spec != "" && len(args) == 0 {
				return nil
			}
			return wantArgs("JOB")(cmd, args)
		},

		ValidArgsFunction: o.completeJob(&q.ns, 1),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			req, err := q.request(d, args, time.Now())
			if err != nil {
				return err
			}
			resp, err := a.submissions.SubmitRun(ctx, req)
			if err != nil {
				return err
			}
			if !q.wait {
				if q.f != formatTable {
					return printOne(d.Stdout, q.f, resp)
				}
				what := "submitted"
				if resp.GetDuplicate() {
					what = "was submitted before"
				}
				_, err = fmt.Fprintf(d.Stdout, "%s %s %s\n", shortJob(resp.GetRun()), runID(resp.GetRun()), what)
				return err
			}
			return waitRun(ctx, d, o, a, resp.GetRun(), q.f, q.result)
		}),
	}
	q.ns.bind(c, o)
	q.f.bind(c)
	flags := c.Flags()
	flags.StringVarP(&q.spec, "filename", "f", "", "file with a spec to run in place of a job's; - for standard input")
	flags.StringVar(&q.at, "at", "", "when it is due, such as 2026-12-01T09:00 or 18:00; default, and where that has passed: at once")
	flags.StringVar(&q.in, "in", "", "how far ahead it is due, such as 90m or 3d")
	flags.StringVar(&q.file, "payload", "", "file with what it is to work on, at most 1 MiB; - for standard input")
	flags.StringVar(&q.data, "data", "", "what it is to work on")
	flags.StringVar(&q.key, "key", "", "idempotency key: of submissions to the job with the same one makes a run")
	flags.DurationVar(&q.keyTTL, "key-ttl", 0, "for how long the key is kept, 1m–720h (default 24h)")
	flags.StringVar(&q.limit, "limit-key", "", "at which of the job's limits that are per key it counts, such as a customer's name")
	flags.BoolVar(&q.overlap, "allow-overlap", false, "start even while another run of the job is live")
	flags.StringVar(&q.reason, "reason", "", "why, for the record")
	flags.BoolVar(&q.wait, "wait", false, "wait for the verdict")
	flags.BoolVar(&q.result, "result", false, "with --wait: print what the run left, and nothing else")
	c.MarkFlagsMutuallyExclusive("at", "in")
	c.MarkFlagsMutuallyExclusive("payload", "data")
	// It fails only for a flag that is not there.
	_ = c.MarkFlagFilename("filename", "yaml", "yml", "json")
	return c
}

// request is the wish as the API takes it.
func (q *submitFlags) request(d Deps, args []string, now time.Time) (*leaderdv1.SubmitRunRequest, error) {
	name, spec, err := q.what(d, args)
	if err != nil {
		return nil, err
	}
	if q.result && !q.wait {
		return nil, usagef("--result: there is none yet without --wait")
	}
	req := &leaderdv1.SubmitRunRequest{
		Job: name, Spec: spec, Payload: []byte(q.data), IdempotencyKey: q.key, AllowOverlap: q.overlap, Reason: q.reason, LimitKey: q.limit,
	}
	if q.key == "" {
		req.IdempotencyKey = "cli:" + rand.Text() // it may be sent to several nodes
	}
	if q.keyTTL != 0 {
		req.IdempotencyTtl = durationpb.New(q.keyTTL)
	}
	switch {
	case q.at != "":
		at, err := readTime("--at", q.at, now, time.Local, nil)
		if err != nil {
			return nil, err
		}
		req.When = &leaderdv1.SubmitRunRequest_StartTime{StartTime: timestamppb.New(at)}
	case q.in != "":
		span, err := parseSpan(q.in)
		if err != nil || span < 0 {
			return nil, usagef("--in: %q is no duration such as 90m, 24h or 7d", clip(q.in))
		}
		req.When = &leaderdv1.SubmitRunRequest_Delay{Delay: durationpb.New(span)}
	}
	if q.file != "" {
		if req.Payload, err = readFlagged(d, "payload", q.file, state.MaxPayloadBytes); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// what is the job that is to run, or the name for that of a spec.
func (q *submitFlags) what(d Deps, args []string) (name string, spec *leaderdv1.JobSpec, err error) {
	var job *leaderdv1.Job
	if q.spec != "" {
		if q.spec == "-" && q.file == "-" {
			return "", nil, usagef("--payload and -f are both standard input")
		}
		if job, err = readSpec(q.spec, d.Stdin); err != nil {
			return "", nil, err
		}
		name, spec = job.GetName(), job.GetSpec()
	}
	if len(args) > 0 {
		name = args[0]
	}
	if name == "" {
		return "namespaces/" + q.ns.name, spec, nil
	}
	name, err = q.ns.job(name)
	return name, spec, err
}

// readSpec reads a file with one job, which need not have a name, or with a spec alone.
func readSpec(file string, stdin io.Reader) (*leaderdv1.Job, error) {
	in := "standard input"
	content, err := []byte(nil), error(nil)
	if file == "-" {
		content, err = io.ReadAll(io.LimitReader(stdin, maxSpecFile))
	} else {
		in = file
		content, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("-f: %w", err)}
	}
	var job *leaderdv1.Job
	for _, doc := range documents(content) {
		tree, err := parseDocument(doc)
		if err != nil {
			return nil, usageError{fmt.Errorf("%s: %w", in, err)}
		}
		if tree == nil { // comments alone
			continue
		}
		if job != nil {
			return nil, usagef("%s: has more than one document; a submission is of one spec", in)
		}
		fields, ok := tree.(map[string]any)
		if !ok {
			return nil, usagef("%s: is no spec, but a list or a value", in)
		}
		if _, whole := fields["spec"]; !whole {
			tree = map[string]any{"spec": tree}
		}
		var n normaliser
		var errs []error
		if job, errs = n.job(tree); len(errs) > 0 {
			return nil, usageError{fmt.Errorf("%s: %w", in, errors.Join(errs...))}
		}
	}
	if job.GetSpec() == nil {
		return nil, usagef("%s: has no spec", in)
	}
	return job, nil
}

// readFlagged reads the file that a flag names, or the input where that is -: one byte more
// than is allowed at most, for the API to refuse.
func readFlagged(d Deps, flag, file string, most int64) ([]byte, error) {
	in := d.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, usageError{fmt.Errorf("--%s: %w", flag, err)}
		}
		defer func() { _ = f.Close() }() // it was only read
		in = f
	}
	content, err := io.ReadAll(io.LimitReader(in, most+1))
	if err != nil {
		return nil, usageError{fmt.Errorf("--%s: %w", flag, err)}
	}
	return content, nil
}

func runWait(d Deps, o *dialer) *cobra.Command {
	var (
		ns     namespace
		f      format
		result bool
	)
	c := &cobra.Command{
		Use:   "wait JOB RUN",
		Short: "Wait until a run has its verdict",
		Long: `Wait until a run has its verdict, and show it. The exit status is 1 unless the run
succeeded.`,
		Args: wantArgs("JOB", "RUN"),

		ValidArgsFunction: o.completeRun(&ns),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			name, err := ns.run(args[0], args[1])
			if err != nil {
				return err
			}
			return waitRun(ctx, d, o, a, name, f, result)
		}),
	}
	ns.bind(c, o)
	f.bind(c)
	c.Flags().BoolVar(&result, "result", false, "print what the run left, and nothing else")
	return c
}

// run is a run's resource name.
func (n *namespace) run(job, run string) (string, error) {
	name, err := n.job(job)
	if err == nil && (run == "" || strings.Contains(run, "/")) {
		err = usagef("%q is not a run's id, such as 20261130T020000Z", run)
	}
	return name + "/runs/" + run, err
}

// waitRun waits for a run and shows it, or what it left.
func waitRun(ctx context.Context, d Deps, o *dialer, a *api, name string, f format, result bool) error {
	// Each request has to be answered within the bound on requests.
	each := min(30*time.Second, o.timeout*3/4)
	var run *leaderdv1.Run
	for done := false; !done; {
		resp, err := a.submissions.WaitRun(ctx, &leaderdv1.WaitRunRequest{Name: name, Timeout: durationpb.New(each)})
		if err != nil {
			return err
		}
		run, done = resp.GetRun(), resp.GetDone()
	}
	succeeded := run.GetState() == leaderdv1.Run_STATE_SUCCEEDED
	switch {
	case result && succeeded:
		return printResult(ctx, d, a, name)
	case f != formatTable:
		if err := printOne(d.Stdout, f, run); err != nil {
			return err
		}
	default:
		if err := printRun(d, run); err != nil {
			return err
		}
	}
	if !succeeded {
		return silentError{exitFailure}
	}
	return nil
}

func runResult(d Deps, o *dialer) *cobra.Command {
	var ns namespace
	c := &cobra.Command{
		Use:   "result JOB RUN",
		Short: "Print what a run left for whoever asked for it",
		Args:  wantArgs("JOB", "RUN"),

		ValidArgsFunction: o.completeRun(&ns),
		RunE: o.with(func(ctx context.Context, a *api, args []string) error {
			name, err := ns.run(args[0], args[1])
			if err != nil {
				return err
			}
			return printResult(ctx, d, a, name)
		}),
	}
	ns.bind(c, o)
	return c
}

func printResult(ctx context.Context, d Deps, a *api, name string) error {
	resp, err := a.submissions.GetRunResult(ctx, &leaderdv1.GetRunResultRequest{Name: name})
	if err != nil {
		return err
	}
	_, err = d.Stdout.Write(resp.GetResult())
	return err
}
