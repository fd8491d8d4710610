package state

import (
	"fmt"
	"time"
)

// Hooks are what follows the verdict of a job's runs; each may be nil. The fields mean
// what leaderd.v1.Hooks says.
type Hooks struct{ OnSuccess, OnFailure, OnExit *Hook }

// Hook is a command or a request: exactly one of both.
type Hook struct {
	Command *Command
	HTTP    *HTTP
	// Timeout is 0 for DefaultHookTimeout.
	Timeout time.Duration
}

// Limits of a Hook.
const (
	DefaultHookTimeout = 30 * time.Second
	MaxHookTimeout     = 10 * time.Minute
	// MaxHookTail is how much of its output's end the record keeps.
	MaxHookTail = 1 << 10
)

// HookName is one of a job's hooks.
type HookName uint8

// Names of hooks.
const (
	HookOnSuccess HookName = iota + 1
	HookOnFailure
	HookOnExit
)

// String is the name as job files have it.
func (n HookName) String() string {
	switch n {
	case HookOnSuccess:
		return "onSuccess"
	case HookOnFailure:
		return "onFailure"
	case HookOnExit:
		return "onExit"
	}
	return fmt.Sprintf("hook(%d)", uint8(n))
}

// Of is the hook of a name; nil: there is none.
func (h *Hooks) Of(n HookName) *Hook {
	if h == nil {
		return nil
	}
	switch n {
	case HookOnSuccess:
		return h.OnSuccess
	case HookOnFailure:
		return h.OnFailure
	case HookOnExit:
		return h.OnExit
	}
	return nil
}

// Due are the hooks that follow a verdict, in order.
func (h *Hooks) Due(verdict RunState) []HookRun {
	if h == nil {
		return nil
	}
	var due []HookRun
	add := func(n HookName) {
		if h.Of(n) != nil {
			due = append(due, HookRun{Name: n})
		}
	}
	switch verdict { //nolint:exhaustive // the others are not an owner's
	case StateSucceeded:
		add(HookOnSuccess)
		add(HookOnExit)
	case StateFailed, StateTimedOut, StateInterrupted:
		add(HookOnFailure)
		add(HookOnExit)
	case StateCancelled:
		add(HookOnExit)
	}
	return due
}

// HookRun is a hook of a run and what became of it. Where State is StateNone that is not
// known: it is under way, or its executor was lost before it could tell.
type HookRun struct {
	Name           HookName
	State          RunState
	Started, Ended time.Time
	// ExitCode is the command's, or the HTTP status; valid when HasCode.
	ExitCode int
	HasCode  bool
	Error    string
	// Tail is the end of its output, at most MaxHookTail bytes.
	Tail []byte
}

// HookReport asks the store to note what became of a hook.
type HookReport struct {
	Job JobID
	Run RunID
	// Token is that of the run's last attempt, whose executor runs the hooks.
	Token int64
	Hook  HookRun
}

func (s *JobSpec) checkHooks(v *Violations) {
	if s.Hooks == nil {
		return
	}
	if s.Shards != nil {
		v.Add("spec.hooks", "is not allowed beside shards: the verdict of a run that is split is nobody's executor's")
	}
	any := false
	for n := HookOnSuccess; n <= HookOnExit; n++ {
		h := s.Hooks.Of(n)
		if h == nil {
			continue
		}
		any = true
		field := "spec.hooks." + n.String()
		checkDuration(v, field+".timeout", h.Timeout, time.Millisecond, MaxHookTimeout)
		if (h.Command == nil) == (h.HTTP == nil) {
			v.Add(field, "needs exactly one of command and http")
		}
		var of Violations
		if h.Command != nil {
			h.Command.validate(&of)
		}
		if h.HTTP != nil {
			h.HTTP.validate(&of)
		}
		for _, bad := range of { // which are named as the job's own target is
			v.Add(field+bad.Field[len("spec"):], "%s", bad.Description)
		}
	}
	if !any {
		v.Add("spec.hooks", "has no hook; one of onSuccess, onFailure and onExit is required")
	}
}
