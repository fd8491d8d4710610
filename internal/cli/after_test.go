package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func TestInOrder(t *testing.T) {
	job := func(name string, after ...string) *leaderdv1.Job {
		j := &leaderdv1.Job{Name: "namespaces/ns/jobs/" + name, Spec: &leaderdv1.JobSpec{}}
		if len(after) > 0 {
			j.Spec.After = &leaderdv1.After{Jobs: after}
		}
		return j
	}
	order := func(jobs ...*leaderdv1.Job) (names []string) {
		for _, j := range inOrder(jobs, func(j *leaderdv1.Job) *leaderdv1.Job { return j }) {
			_, name := splitJob(j.GetName())
			names = append(names, name)
		}
		return names
	}
	require.Equal(t, []string{"z", "b", "a"}, order(job("z"), job("b"), job("a")), "as they are")
	require.Equal(t, []string{"a", "b", "d", "c", "e"}, order(job("b", "a"), job("a"), job("c", "b", "d"), job("d", "elsewhere"), job("e")))
	require.Len(t, order(job("a", "b"), job("b", "a")), 2, "the server says that it is a circle")
}
