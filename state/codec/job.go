package codec

import (
	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state"
)

// JobFromProto reads a stored job. ID and Revision are the key's to tell.
func JobFromProto(p *statev1.Job) state.Job {
	return state.Job{
		UID:         p.GetUid(),
		Generation:  p.GetGeneration(),
		Spec:        SpecFromProto(p.GetSpec()),
		Paused:      p.GetPaused(),
		PauseReason: p.GetPauseReason(),
		PauseActor:  p.GetPauseActor(),
		PausedUntil: Time(p.GetPausedUntil()),
		Created:     Time(p.GetCreated()),
		Updated:     Time(p.GetUpdated()),
		UpdatedBy:   p.GetUpdatedBy(),
		Effective:   Time(p.GetEffective()),
		Anchor:      Time(p.GetAnchor()),
		Adhoc:       p.GetAdhoc(),
		Calendars:   JobCalendarsFromProto(p.GetCalendars()),
	}
}

// NodeToProto is a node in its stored form. Name and Revision are the key's to
// tell.
func NodeToProto(n *state.Node) *statev1.Node {
	return &statev1.Node{
		Control:  n.Control,
		Executor: n.Executor,
		Address:  n.Address,
		Labels:   n.Labels,
		Capacity: int32(n.Capacity), //nolint:gosec // bounded by state.MaxCapacity
		Version:  n.Version,
		Started:  Micros(n.Started),

		Resources: ResourcesToProto(n.Resources),
	}
}

// NodeFromProto is the inverse of NodeToProto.
func NodeFromProto(p *statev1.Node) state.Node {
	return state.Node{
		Control:  p.GetControl(),
		Executor: p.GetExecutor(),
		Address:  p.GetAddress(),
		Labels:   p.GetLabels(),
		Capacity: int(p.GetCapacity()),
		Version:  p.GetVersion(),
		Started:  Time(p.GetStarted()),

		Resources: ResourcesFromProto(p.GetResources()),
	}
}
