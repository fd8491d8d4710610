package runner

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/leaderd/leaderd/state"
)

// newClient makes the client of all requests. Redirects are not followed: a 3xx is
// a status like others, and no header of the job (a key, the token) goes to a host
// that the job does not name. Proxies are taken from the environment.
func newClient() *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         dialer.DialContext,
			ForceAttemptHTTP2:   true,
			TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConns:        256,
			MaxIdleConnsPerHost: 16,
			// Shorter than servers commonly keep theirs, so that a request seldom
			// meets a connection that is being closed.
			IdleConnTimeout:        4 * time.Second,
			ExpectContinueTimeout:  time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// request makes the request of t and writes the body of the answer to out.
func (r *Runner) request(ctx context.Context, t *Task, out io.Writer) (o Outcome) {
	if t.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t.Timeout, errTimedOut)
		defer cancel()
	}
	req, err := r.newRequest(ctx, t)
	if err == nil {
		err = resume(ctx, t, req)
	}
	if ctx.Err() != nil {
		o.stopped(t, context.Cause(ctx))
		return o
	}
	if err != nil {
		o.fail(err)
		return o
	}
	o.Started = time.Now()
	resp, err := r.client.Do(req) //nolint:bodyclose // readBody closes it
	if err != nil {
		o.requestFailed(ctx, t, err)
		return o
	}
	o.ExitCode, o.HasCode = resp.StatusCode, true
	left := &tee{to: out}
	if t.Submitted {
		out = left
	}
	var checkpoint *bytes.Buffer
	if t.Checkpoint != nil && strings.EqualFold(resp.Header.Get(checkpointBody), "true") {
		checkpoint = &bytes.Buffer{}
		out = &limited{to: checkpoint, left: state.MaxCheckpoint + 1}
	}
	err = r.readBody(&o, resp.Body, out)
	o.Ended = time.Now()
	var unsaved error
	if err == nil {
		unsaved = keepAnswer(ctx, t, resp, checkpoint)
	}
	switch {
	case err != nil:
		o.requestFailed(ctx, t, fmt.Errorf("reading the response: %w", err))
	case unsaved != nil && ctx.Err() != nil:
		o.stopped(t, context.Cause(ctx))
	case unsaved != nil:
		o.fail(unsaved)
	case !expected(t.HTTP, resp.StatusCode):
		o.fail(fmt.Errorf("unexpected status %s", resp.Status))
		o.Directive.RetryAfter = retryAfter(resp, o.Ended)
	default:
		o.State = state.StateSucceeded
		o.keep(left.kept)
	}
	return o
}

// requestFailed tells a stop from a failure.
func (o *Outcome) requestFailed(ctx context.Context, t *Task, err error) {
	if ctx.Err() != nil {
		o.stopped(t, context.Cause(ctx))
		return
	}
	// Without the URL: it may hold a secret, and fill the error.
	text := err
	if u := (*url.Error)(nil); errors.As(err, &u) {
		text = u.Err
	}
	o.fail(errors.New(errorKind(err) + text.Error()))
}

func expected(h *state.HTTP, code int) bool {
	if len(h.ExpectedCodes) == 0 {
		return code >= 200 && code <= 299
	}
	return slices.Contains(h.ExpectedCodes, code)
}

// newRequest makes the request with the headers that say who the attempt is; a job
// cannot set those.
func (r *Runner) newRequest(ctx context.Context, t *Task) (*http.Request, error) {
	h := t.HTTP
	var body io.Reader
	switch {
	case len(t.Payload) > 0:
		body = bytes.NewReader(t.Payload)
	case len(h.Body) > 0:
		body = bytes.NewReader(h.Body)
	}
	req, err := http.NewRequestWithContext(ctx, cmp.Or(h.Method, state.DefaultHTTPMethod), h.URL, body)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" || req.URL.Host == "" {
		return nil, fmt.Errorf("request: %q is no http or https URL", h.URL)
	}
	req.Header.Set("User-Agent", "leaderd/"+r.cfg.Version)
	if len(t.Payload) > 0 {
		req.Header.Set("Content-Type", "application/octet-stream") // unless the job says what it is
	}
	for name, value := range h.Header {
		if strings.EqualFold(name, "Host") {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	for name, value := range map[string]string{
		"Leaderd-Namespace": t.Job.Namespace,
		"Leaderd-Job":       t.Job.Name,
		"Leaderd-Run":       string(t.Run),
		"Leaderd-Slot":      slotText(t.Slot),
		"Leaderd-Attempt":   strconv.Itoa(t.Attempt),
		"Leaderd-Shard":     strconv.Itoa(t.Shard),
		"Leaderd-Shards":    strconv.Itoa(t.Shards),
		"Leaderd-Token":     strconv.FormatInt(t.Token, 10),
	} {
		req.Header.Set(name, value)
	}
	if t.Part != nil {
		setPart(req.Header, t.Part)
	}
	if t.Step != "" {
		req.Header.Set("Leaderd-Step", t.Step)
	}
	setChain(req.Header, t)
	// Under its canonical name net/http would take the header as leave to send a
	// POST a second time by itself. One attempt is one request; retries are the
	// job's policy. Header names are the same to servers in any case.
	req.Header.Del("Idempotency-Key")
	req.Header["idempotency-key"] = []string{idempotencyKey(t)}
	return req, nil
}

// setChain adds what came before the run, and what a hook is told.
func setChain(header http.Header, t *Task) {
	header.Set("Leaderd-Correlation", t.Chain.Correlate(t.Job.Name, t.Run))
	if len(t.Chain.Upstream) > 0 {
		header.Set("Leaderd-Upstream", t.upstream())
	}
	if h := t.After; h != nil {
		header.Set("Leaderd-Hook", h.Hook.String())
		header.Set("Leaderd-Outcome", h.State.String())
		header.Set("Leaderd-Reason", inHeader(h.Reason))
		header.Set("Leaderd-Error", inHeader(h.Error))
		header.Set("Leaderd-Exit-Code", h.exitCode())
	}
}

// inHeader is a text without what a header cannot hold.
func inHeader(text string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

// setPart adds what a shard is given.
func setPart(header http.Header, part *state.Part) {
	if part.HasRange {
		header.Set("Leaderd-Shard-From", strconv.FormatInt(part.Range.From, 10))
		header.Set("Leaderd-Shard-To", strconv.FormatInt(part.Range.To, 10))
	}
	for name, value := range part.Params {
		header.Set("Leaderd-Shard-Param-"+strings.ReplaceAll(name, "_", "-"), value)
	}
}

// idempotencyKey is the same for all attempts at a shard, and no others; a hook has its
// own.
func idempotencyKey(t *Task) string {
	key := url.PathEscape(t.Job.Namespace) + "/" + url.PathEscape(t.Job.Name) + "/" +
		url.PathEscape(string(t.Run)) + "/" + strconv.Itoa(t.Shard)
	if t.After != nil {
		key += "/" + t.After.Hook.String()
	}
	return key
}

// readBody copies at most MaxResponseBytes of the body to out and closes it. An
// error of out is kept in the outcome and stops only the copying.
func (r *Runner) readBody(o *Outcome, body io.ReadCloser, out io.Writer) (err error) {
	defer func() { err = errors.Join(err, body.Close()) }()
	buf := pumpBuffers.Get().(*[32 << 10]byte)
	defer pumpBuffers.Put(buf)
	for left := r.cfg.MaxResponseBytes; left > 0; {
		n, err := body.Read(buf[:min(left, int64(len(buf)))])
		left -= int64(n)
		if n > 0 && out != nil && o.OutputErr == nil {
			_, o.OutputErr = out.Write(buf[:n])
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errorKind puts the common failures into a word, ahead of the text of the error.
func errorKind(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var cert *tls.CertificateVerificationError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &dns):
		return "dns: "
	case errors.As(err, &cert), errors.As(err, &record), errors.As(err, &alert), errors.Is(err, http.ErrSchemeMismatch):
		return "tls: "
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused: "
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset: "
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout: "
	case errors.As(err, &op) && op.Op == "dial":
		return "dial: "
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "closed: "
	}
	return "request: "
}
