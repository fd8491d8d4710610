package api

import (
	"fmt"
	"strings"

	"github.com/leaderd/leaderd/state"
)

// all is the part of a parent's name that stands for every one.
const all = "-"

const (
	jobPattern       = "namespaces/{namespace}/jobs/{job}"
	runPattern       = jobPattern + "/runs/{run}"
	namespacePattern = "namespaces/{namespace}"
)

// jobName is a job's resource name.
func jobName(id state.JobID) string {
	// Names that no request can make come from broken keys; answers are text.
	return strings.ToValidUTF8("namespaces/"+id.Namespace+"/jobs/"+id.Name, "\uFFFD")
}

// runName is a run's resource name.
func runName(id state.JobID, run state.RunID) string {
	return jobName(id) + "/runs/" + strings.ToValidUTF8(string(run), "\uFFFD")
}

// splitName takes the variable parts out of a resource name, as pattern has
// them in braces.
func splitName(name, pattern string) ([]string, error) {
	if name == "" {
		return nil, fmt.Errorf("is empty; expected %s", pattern)
	}
	parts, want := strings.Split(name, "/"), strings.Split(pattern, "/")
	if len(parts) != len(want) {
		return nil, fmt.Errorf("%q has %d parts, expected the %d of %s", clip(name), len(parts), len(want), pattern)
	}
	var vars []string
	for i, part := range parts {
		switch {
		case strings.HasPrefix(want[i], "{"):
			vars = append(vars, part)
		case part != want[i]:
			return nil, fmt.Errorf("%q has %q where %q is expected, as in %s", clip(name), clip(part), want[i], pattern)
		}
	}
	return vars, nil
}

// parseJobName reads a job's resource name; what is wrong with it is added to v
// as a violation of the field "name".
func parseJobName(v *state.Violations, name string) state.JobID { return parseJob(v, "name", name) }

// parseJob is parseJobName for another field.
func parseJob(v *state.Violations, field, name string) state.JobID {
	vars, err := splitName(name, jobPattern)
	if err != nil {
		v.Add(field, "%s", err)
		return state.JobID{}
	}
	checkPart(v, field, "namespace", vars[0])
	checkPart(v, field, "job", vars[1])
	return state.JobID{Namespace: vars[0], Name: vars[1]}
}

// parseRunName is parseJobName for a run.
func parseRunName(v *state.Violations, name string) (state.JobID, state.RunID) {
	vars, err := splitName(name, runPattern)
	if err != nil {
		v.Add("name", "%s", err)
		return state.JobID{}, ""
	}
	checkPart(v, "name", "namespace", vars[0])
	checkPart(v, "name", "job", vars[1])
	begin, _, _ := strings.Cut(vars[2], "-")
	if _, ok := state.RunID(begin).Slot(); !ok || state.CheckName(vars[2]) != "" {
		v.Add("name", "run %q is no run's id; expected is its time and perhaps its kind, such as 20261130T020000Z or 20261130T020000Z-trigger-5f3a9c01", clip(vars[2]))
	}
	return state.JobID{Namespace: vars[0], Name: vars[1]}, state.RunID(vars[2])
}

// parseNamespaceParent reads namespaces/{namespace}; the empty namespace stands
// for all.
func parseNamespaceParent(v *state.Violations, parent string) (namespace string) {
	vars, err := splitName(parent, namespacePattern)
	if err != nil {
		v.Add("parent", "%s; namespaces/- stands for all", err)
		return ""
	}
	return parentPart(v, "namespace", vars[0])
}

// parseJobParent reads namespaces/{namespace}/jobs/{job}; an empty part stands
// for all.
func parseJobParent(v *state.Violations, parent string) (namespace, job string) {
	vars, err := splitName(parent, jobPattern)
	if err != nil {
		v.Add("parent", "%s; - stands for all in either place", err)
		return "", ""
	}
	return parentPart(v, "namespace", vars[0]), parentPart(v, "job", vars[1])
}

func parentPart(v *state.Violations, kind, part string) string {
	if part == all {
		return ""
	}
	checkPart(v, "parent", kind, part)
	return part
}

func checkPart(v *state.Violations, field, kind, part string) {
	if why := state.CheckName(part); why != "" {
		v.Add(field, "%s %s", kind, why)
	}
}

// clip shortens a user's text so that an error stays readable.
func clip(s string) string {
	const limit = 100
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
