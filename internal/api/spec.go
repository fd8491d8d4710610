package api

import (
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/leaderd/leaderd/planner/schedule"
	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// ScheduleChecks are package schedule's rules.
var ScheduleChecks = state.ScheduleChecks{
	Zone: func(zone string) error {
		_, err := schedule.Parse("@hourly", schedule.Options{Zone: zone})
		if bad, ok := errors.AsType[*schedule.ParseError](err); ok {
			// The text in it is not the user's.
			return fmt.Errorf("%q: %s", clip(zone), withHint(bad.Reason, bad.Hint))
		}
		return err
	},
	Schedule: func(text, zone string) error {
		_, err := schedule.Parse(text, schedule.Options{Zone: zone})
		return err
	},
}

func withHint(reason, hint string) string {
	if hint == "" {
		return reason
	}
	return reason + "; " + hint
}

// checkSpec adds everything that is wrong with a spec to v: first what only the
// message shows, then the rules on its meaning.
func checkSpec(v *state.Violations, spec *leaderdv1.JobSpec) {
	if spec == nil {
		v.Add("spec", "is required")
		return
	}
	if n := proto.Size(spec); n > state.MaxSpecBytes {
		v.Add("spec", "has %d bytes; at most %d are allowed", n, state.MaxSpecBytes)
		return
	}
	checkEnum(v, "spec.overlap", spec.GetOverlap(), leaderdv1.Overlap_name)
	checkEnum(v, "spec.catchUp", spec.GetCatchUp(), leaderdv1.CatchUp_name)
	checkEnum(v, "spec.guarantee", spec.GetGuarantee(), leaderdv1.Guarantee_name)
	checkEnum(v, "spec.checkpoint.scope", spec.GetCheckpoint().GetScope(), leaderdv1.CheckpointPolicy_Scope_name)
	checkEnum(v, "spec.after.mode", spec.GetAfter().GetMode(), leaderdv1.After_Mode_name)
	checkEnum(v, "spec.after.condition", spec.GetAfter().GetCondition(), leaderdv1.After_Condition_name)
	checkEnum(v, "spec.drain", spec.GetDrain(), leaderdv1.Drain_name)
	checkEnum(v, "spec.storeOutage", spec.GetStoreOutage(), leaderdv1.StoreOutage_name)
	checkEnum(v, "spec.missingTime", spec.GetMissingTime(), leaderdv1.MissingTime_name)
	checkEnum(v, "spec.repeatedTime", spec.GetRepeatedTime(), leaderdv1.RepeatedTime_name)
	checkInstant(v, "spec.startTime", spec.GetStartTime())
	checkInstant(v, "spec.endTime", spec.GetEndTime())
	whole := checkDuration(v, "spec.startDeadline", spec.GetStartDeadline())
	whole = checkDuration(v, "spec.jitter", spec.GetJitter()) && whole
	whole = checkDuration(v, "spec.catchUpWindow", spec.GetCatchUpWindow()) && whole
	whole = checkDuration(v, "spec.timeout", spec.GetTimeout()) && whole
	whole = checkDuration(v, "spec.killGrace", spec.GetKillGrace()) && whole
	whole = checkDuration(v, "spec.runTimeout", spec.GetRunTimeout()) && whole
	whole = checkDuration(v, "spec.queueTimeout", spec.GetQueueTimeout()) && whole
	whole = checkDuration(v, "spec.retry.initialBackoff", spec.GetRetry().GetInitialBackoff()) && whole
	whole = checkDuration(v, "spec.retry.maxBackoff", spec.GetRetry().GetMaxBackoff()) && whole
	whole = checkDuration(v, "spec.circuitBreaker.coolDown", spec.GetCircuitBreaker().GetCoolDown()) && whole
	whole = checkDuration(v, "spec.hooks.onSuccess.timeout", spec.GetHooks().GetOnSuccess().GetTimeout()) && whole
	whole = checkDuration(v, "spec.hooks.onFailure.timeout", spec.GetHooks().GetOnFailure().GetTimeout()) && whole
	whole = checkDuration(v, "spec.hooks.onExit.timeout", spec.GetHooks().GetOnExit().GetTimeout()) && whole
	whole = checkDuration(v, "spec.retention.maxAge", spec.GetRetention().GetMaxAge()) && whole

	domain := codec.SpecFromProto(spec)
	if !whole {
		// What is no duration was answered above.
		domain.StartDeadline, domain.Timeout, domain.KillGrace = 0, 0, 0
		domain.Jitter, domain.CatchUpWindow = 0, 0
		domain.RunTimeout, domain.QueueTimeout = 0, 0
		if domain.Retry != nil {
			domain.Retry.InitialBackoff, domain.Retry.MaxBackoff = 0, 0
		}
		domain.Retention.MaxAge = 0
		if domain.CircuitBreaker != nil {
			domain.CircuitBreaker.CoolDown = 0
		}
		for n := state.HookOnSuccess; n <= state.HookOnExit; n++ {
			if h := domain.Hooks.Of(n); h != nil {
				h.Timeout = 0
			}
		}
	}
	if bad, ok := errors.AsType[state.Violations](domain.Validate(ScheduleChecks)); ok {
		*v = append(*v, bad...)
	}
}

// checkInstant refuses what is no instant of the years 1 to 9999, and the zero
// time, which would read as unset.
func checkInstant(v *state.Violations, field string, t *timestamppb.Timestamp) {
	if t == nil {
		return
	}
	if t.CheckValid() != nil || t.AsTime().IsZero() {
		v.Add(field, "is no instant of the years 1 to 9999: %d s and %d ns", t.GetSeconds(), t.GetNanos())
	}
}

func checkEnum[E ~int32](v *state.Violations, field string, value E, names map[int32]string) {
	if _, known := names[int32(value)]; !known {
		v.Add(field, "%d is no value that this version knows", value)
	}
}

// checkDuration refuses what time.Duration cannot hold, and set values of 0,
// which would read as unset.
func checkDuration(v *state.Violations, field string, d *durationpb.Duration) bool {
	if d == nil {
		return true
	}
	switch err := d.CheckValid(); {
	case err != nil:
		v.Add(field, "is no duration: %d s and %d ns", d.GetSeconds(), d.GetNanos())
	case d.GetSeconds() > math.MaxInt64/int64(time.Second)-1 || d.GetSeconds() < math.MinInt64/int64(time.Second)+1:
		v.Add(field, "%d s is too long", d.GetSeconds())
	case d.AsDuration() == 0:
		v.Add(field, "is 0; leave it out for the default")
	default:
		return true
	}
	return false
}
