package codec

import (
	"google.golang.org/protobuf/encoding/protowire"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	workerv1 "github.com/leaderd/leaderd/proto/leaderd/worker/v1"
	"github.com/leaderd/leaderd/state"
)

func hooksToProto(h *state.Hooks) *leaderdv1.Hooks {
	if h == nil {
		return nil
	}
	return &leaderdv1.Hooks{OnSuccess: hookToProto(h.OnSuccess), OnFailure: hookToProto(h.OnFailure), OnExit: hookToProto(h.OnExit)}
}

func hookToProto(h *state.Hook) *leaderdv1.Hook {
	if h == nil {
		return nil
	}
	p := &leaderdv1.Hook{Timeout: durationOf(h.Timeout)}
	switch {
	case h.Command != nil:
		p.Target = &leaderdv1.Hook_Command{Command: commandToProto(h.Command)}
	case h.HTTP != nil:
		p.Target = &leaderdv1.Hook_Http{Http: httpToProto(h.HTTP)}
	}
	return p
}

func hooksFromProto(p *leaderdv1.Hooks) *state.Hooks {
	if p == nil {
		return nil
	}
	return &state.Hooks{OnSuccess: hookFromProto(p.GetOnSuccess()), OnFailure: hookFromProto(p.GetOnFailure()), OnExit: hookFromProto(p.GetOnExit())}
}

func hookFromProto(p *leaderdv1.Hook) *state.Hook {
	if p == nil {
		return nil
	}
	h := &state.Hook{Timeout: p.GetTimeout().AsDuration()}
	switch t := p.GetTarget().(type) {
	case *leaderdv1.Hook_Command:
		h.Command = commandFromProto(t.Command)
	case *leaderdv1.Hook_Http:
		h.HTTP = httpFromProto(t.Http)
	}
	return h
}

// HookRunToProto is a hook of a run in its stored form.
func HookRunToProto(h *state.HookRun) *statev1.HookRun {
	p := &statev1.HookRun{
		Name: uint32(h.Name), State: uint32(h.State), Started: Micros(h.Started), Ended: Micros(h.Ended), Error: h.Error, Tail: h.Tail,
	}
	if h.HasCode {
		code := int32(h.ExitCode) //nolint:gosec // an exit code or status
		p.ExitCode = &code
	}
	return p
}

func hookRunFromProto(p *statev1.HookRun) state.HookRun {
	return state.HookRun{
		Name: state.HookName(min(p.GetName(), 0xff)), State: runState(p.GetState()),
		Started: Time(p.GetStarted()), Ended: Time(p.GetEnded()),
		ExitCode: int(p.GetExitCode()), HasCode: p.ExitCode != nil, Error: p.GetError(), Tail: p.GetTail(),
	}
}

func hookRunsToProto(hs []state.HookRun) []*statev1.HookRun {
	if len(hs) == 0 {
		return nil
	}
	ps := make([]*statev1.HookRun, len(hs))
	for i := range hs {
		ps[i] = HookRunToProto(&hs[i])
	}
	return ps
}

func hookRunsFromProto(ps []*statev1.HookRun) []state.HookRun {
	if len(ps) == 0 {
		return nil
	}
	hs := make([]state.HookRun, len(ps))
	for i, p := range ps {
		hs[i] = hookRunFromProto(p)
	}
	return hs
}

func (w *wire) hooks(field protowire.Number, hs []state.HookRun) {
	for i := range hs {
		h := &hs[i]
		var inner wire
		inner.number(1, int64(h.Name))
		inner.instant(2, h.Started)
		inner.instant(3, h.Ended)
		inner.number(4, int64(h.State))
		if h.HasCode {
			inner = protowire.AppendVarint(protowire.AppendTag(inner, 5, protowire.VarintType), uint64(int64(int32(h.ExitCode)))) //nolint:gosec // as protobuf has it
		}
		inner.text(6, h.Error)
		inner.bytes(7, h.Tail)
		w.nested(field, inner)
	}
}

// DoubleReportToProto is a report as the journal's protocol has it.
func DoubleReportToProto(r *state.DoubleReport) *workerv1.NoteDouble {
	return &workerv1.NoteDouble{
		Namespace: r.Job.Namespace, Job: r.Job.Name, Run: string(r.Run), Attempt: AttemptToProto(&r.Attempt),
	}
}

// DoubleReportFromProto is the inverse of DoubleReportToProto.
func DoubleReportFromProto(p *workerv1.NoteDouble) state.DoubleReport {
	return state.DoubleReport{
		Job: state.JobID{Namespace: p.GetNamespace(), Name: p.GetJob()}, Run: state.RunID(p.GetRun()),
		Attempt: AttemptFromProto(p.GetAttempt()),
	}
}

// HookReportToProto is a report as the journal's protocol has it.
func HookReportToProto(r *state.HookReport) *workerv1.NoteHook {
	return &workerv1.NoteHook{
		Namespace: r.Job.Namespace, Job: r.Job.Name, Run: string(r.Run), Token: r.Token, Hook: HookRunToProto(&r.Hook),
	}
}

// HookReportFromProto is the inverse of HookReportToProto.
func HookReportFromProto(p *workerv1.NoteHook) state.HookReport {
	return state.HookReport{
		Job: state.JobID{Namespace: p.GetNamespace(), Name: p.GetJob()}, Run: state.RunID(p.GetRun()), Token: p.GetToken(),
		Hook: hookRunFromProto(p.GetHook()),
	}
}
