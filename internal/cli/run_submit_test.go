package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// What is submitted is a job, or a spec of a file, which names its job or not.
func TestSubmitWhat(t *testing.T) {
	dir := t.TempDir()
	ask := func(content, stdin string, args ...string) (*leaderdv1.SubmitRunRequest, error) {
		q := submitFlags{ns: namespace{name: "shop"}}
		if content != "" {
			q.spec = filepath.Join(dir, "spec.yaml")
			require.NoError(t, os.WriteFile(q.spec, []byte(content), 0o600))
		} else if stdin != "" {
			q.spec = "-"
		}
		return q.request(Deps{Stdin: strings.NewReader(stdin)}, args, time.Now())
	}
	const bare, named = "# once\ntimeout: 5m\ncommand: {argv: [reindex]}\n", "name: other/reindex\nspec: {timeout: 5m, command: {argv: [reindex]}}\n"
	for _, tc := range []struct {
		content, stdin string
		args           []string
		job            string
	}{
		{"", "", []string{"a"}, "namespaces/shop/jobs/a"},
		{bare, "", nil, "namespaces/shop"},
		{"", bare, nil, "namespaces/shop"},
		{bare, "", []string{"a"}, "namespaces/shop/jobs/a"},
		{named, "", nil, "namespaces/other/jobs/reindex"},
		{"", named, []string{"ns/a"}, "namespaces/ns/jobs/a"},
	} {
		req, err := ask(tc.content, tc.stdin, tc.args...)
		require.NoError(t, err)
		require.Equal(t, tc.job, req.GetJob())
		if tc.content+tc.stdin == "" {
			require.Nil(t, req.GetSpec())
			continue
		}
		require.Equal(t, 5*time.Minute, req.GetSpec().GetTimeout().AsDuration())
		require.Equal(t, []string{"reindex"}, req.GetSpec().GetCommand().GetArgv())
	}
	for content, text := range map[string]string{
		"command: {argv: [a]}\n---\nnoop:\n": "has more than one document",
		"- noop:\n":                          "is no spec, but a list or a value",
		"# nothing\n":                        "has no spec",
		"name: a\nspec:\n":                   "spec",
		"tiemout: 5m\nnoop:\n":               "tiemout",
		"name: a/b/c\nspec: {noop: }\n":      `"a/b/c" is not a job's name`,
	} {
		_, err := ask(content, "")
		require.ErrorContains(t, err, text)
		require.ErrorAs(t, err, new(usageError))
	}
	q := submitFlags{spec: "-", file: "-"}
	_, err := q.request(Deps{Stdin: strings.NewReader("")}, nil, time.Now())
	require.ErrorContains(t, err, "both standard input")
	q = submitFlags{spec: filepath.Join(dir, "absent")}
	_, err = q.request(Deps{}, nil, time.Now())
	require.ErrorContains(t, err, "-f: open")
}
