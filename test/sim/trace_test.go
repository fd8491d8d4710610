package sim

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/leaderd/leaderd/proto/leaderd/state/v1"
	"github.com/leaderd/leaderd/state/codec"
)

var eventsFlag = flag.String("events", "", "job (ns/name, or all) whose events in the store a failed test shows")

// trace shows what happened to a job, and to the timeline.
func (w *world) trace(t *testing.T) {
	if *eventsFlag == "" {
		return
	}
	var b strings.Builder
	for _, e := range w.audit.all() {
		kind, rest := e.part()
		what := ""
		switch {
		case kind == "timeline" && rest == "watermark":
			m, _ := e.watermark()
			what = fmt.Sprintf("%s in term %d, for the jobs of rev %d", m.instant.Format("15:04:05.000"), m.term, m.jobs)
		case kind == "timeline":
			var p statev1.Closed
			_ = proto.Unmarshal(e.KV.Value, &p)
			what = fmt.Sprintf("%s in term %d", codec.Time(p.GetInstant()).Format(clockLayout), p.GetTerm())
		case kind == "leader":
			what = string(e.KV.Value)
		case *eventsFlag != "all" && !strings.HasPrefix(rest+"/", *eventsFlag+"/"):
			continue
		case e.Deleted:
		case kind == "jobs":
			j, err := w.api.DecodeJob(e.KV)
			what = fmt.Sprintf("generation %d from %s, paused %t, updated %s, %v, err %v", j.Generation,
				j.Effective.Format(clockLayout), j.Paused, j.Updated.Format(clockLayout), j.Spec, err)
		case kind == "active":
			l, _ := e.live()
			what = fmt.Sprintf("%s %s attempt %d of %s, generation %d, planned by %d", l.Run, l.State, l.Attempt, l.Owner.Node, l.Generation, l.Term)
		case kind == "history":
			r, _ := e.record()
			what = fmt.Sprintf("%s:%s to %s, %d slots, generation %d", r.State, r.Reason, r.Until.Format(clockLayout), r.Count, r.Generation)
		}
		if e.Deleted {
			what = "deleted"
		}
		fmt.Fprintf(&b, "%s rev %d %s/%s: %s\n", e.at.UTC().Format("15:04:05.000"), e.revision, kind, rest, what)
	}
	t.Log("trace:\n" + b.String())
}
