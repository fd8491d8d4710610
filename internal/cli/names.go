package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// defaultNamespace is where short names are.
const defaultNamespace = "default"

// namespace is the --namespace of a command.
type namespace struct {
	name  string
	flags *pflag.FlagSet // nil: nobody was asked
}

func (n *namespace) bind(cmd *cobra.Command, o *dialer) {
	n.flags = cmd.Flags()
	n.flags.StringVarP(&n.name, "namespace", "n", defaultNamespace, "namespace of short names")
	complete(cmd, "namespace", o.namespaces)
}

// job is the resource name of what somebody calls a job: billing, ns/billing or
// namespaces/ns/jobs/billing. A namespace in the name that contradicts one on the
// command line is refused: one of them is a mistake. Whether the parts are allowed
// is for the server to say.
func (n *namespace) job(name string) (string, error) {
	ns, job := n.name, name
	switch parts := strings.Split(name, "/"); {
	case len(parts) == 1:
	case len(parts) == 2:
		ns, job = parts[0], parts[1]
	case len(parts) == 4 && parts[0] == "namespaces" && parts[2] == "jobs":
		ns, job = parts[1], parts[3]
	default:
		return "", usagef("%q is not a job's name: want job, namespace/job or namespaces/namespace/jobs/job", name)
	}
	if ns == "" || job == "" || ns == "-" || job == "-" {
		return "", usagef("%q is not a job's name: a part of it is empty or '-'", name)
	}
	if n.flags != nil && n.flags.Changed("namespace") && ns != n.name {
		return "", usagef("%q is in another namespace than --namespace %s", name, n.name)
	}
	return "namespaces/" + ns + "/jobs/" + job, nil
}

// splitJob is the namespace and the job of a resource name of a job or run.
func splitJob(resource string) (ns, job string) {
	parts := strings.Split(resource, "/")
	if len(parts) < 4 {
		return "", resource
	}
	return parts[1], parts[3]
}

// shortJob is namespace/job, which all commands understand.
func shortJob(resource string) string {
	ns, job := splitJob(resource)
	return ns + "/" + job
}

// runID is the last part of a run's resource name.
func runID(resource string) string { return resource[strings.LastIndexByte(resource, '/')+1:] }

// all is job for each of several names.
func (n *namespace) all(names []string) ([]string, error) {
	out := make([]string, 0, len(names))
	for _, name := range names {
		full, err := n.job(name)
		if err != nil {
			return nil, err
		}
		out = append(out, full)
	}
	return out, nil
}
