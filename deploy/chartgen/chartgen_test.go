package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChartIsCurrent: what is made from values.yaml was made after its last change.
func TestChartIsCurrent(t *testing.T) {
	require.NoError(t, run("../helm/leaderd", true))
}

const example = `# A chart's values.

# @section First
# -- Name of
# all of it.
# @schema {"maxLength": 9}
name: a
image:
  # -- Tag.
  tag: ""
  # -- One | two.
  # @schema {"enum": ["one", "two"]}
  kind: one

# @section Second
# -- How many.
count: 3
# -- Whole.
limits: {cpu: 1}
# -- None, or a number.
# @schema {"type": ["integer", "null"]}
grace: null
# -- Any.
any: {}
# -- List.
list: []
`

// chart is a folder with the files that chartgen reads.
func chart(t *testing.T, values, readme string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "values.yaml"), []byte(values), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "README.md"), []byte(readme), 0o600))
	return dir
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return string(content)
}

func TestGenerates(t *testing.T) {
	dir := chart(t, example, "before\n<!-- values -->\nold\n<!-- /values -->\nafter\n")
	require.ErrorContains(t, run(dir, true), "is not current: make generate-chart")
	require.Contains(t, read(t, dir, "README.md"), "old", "a check writes nothing")
	require.NoError(t, run(dir, false))
	require.NoError(t, run(dir, true))
	require.Equal(t, `before
<!-- values -->

### First

| value | default | meaning |
|---|---|---|
| `+"`name` | `a`"+` | Name of all of it. |
| `+"`image.tag`"+` |  | Tag. |
| `+"`image.kind` | `one`"+` | One \| two. |

### Second

| value | default | meaning |
|---|---|---|
| `+"`count` | `3`"+` | How many. |
| `+"`limits` | `{\"cpu\":1}`"+` | Whole. |
| `+"`grace`"+` |  | None, or a number. |
| `+"`any`"+` |  | Any. |
| `+"`list`"+` |  | List. |

<!-- /values -->
after
`, read(t, dir, "README.md"))
	require.JSONEq(t, `{
	  "$schema": "http://json-schema.org/draft-07/schema#",
	  "type": "object", "additionalProperties": false,
	  "properties": {
	    "name": {"type": "string", "maxLength": 9, "description": "Name of all of it."},
	    "image": {"type": "object", "additionalProperties": false, "properties": {
	      "tag": {"type": "string", "description": "Tag."},
	      "kind": {"type": "string", "enum": ["one", "two"], "description": "One | two."}
	    }},
	    "count": {"type": "integer", "description": "How many."},
	    "limits": {"type": "object", "description": "Whole."},
	    "grace": {"type": ["integer", "null"], "description": "None, or a number."},
	    "any": {"type": "object", "description": "Any."},
	    "list": {"type": "array", "description": "List."}
	  }
	}`, read(t, dir, "values.schema.json"))
}

func TestRefusals(t *testing.T) {
	const readme = "<!-- values -->\n<!-- /values -->\n"
	for name, c := range map[string]struct{ values, readme, says string }{
		"no description": {"# @section A\nimage:\n  # a\n  tag: a\n", readme, "image.tag: no description"},
		"no type":        {"# @section A\n# -- A.\na: null\n", readme, "a: the default is null"},
		"no section":     {"# -- A.\na: 1\n", readme, "a: the first value begins no section"},
		"bad schema":     {"# @section A\n# -- A.\n# @schema {\na: 1\n", readme, "a: @schema: "},
		"annotation":     {"# @section A\n# -- A.\n# @shcema {}\na: 1\n", readme, "a: @shcema is no annotation"},
		"no mapping":     {"[]", readme, "must be a mapping"},
		"no begin":       {"# @section A\n# -- A.\na: 1\n", "", "the line <!-- values --> is missing"},
		"no end":         {"# @section A\n# -- A.\na: 1\n", "<!-- values -->\n", "the line <!-- /values --> is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, run(chart(t, c.values, c.readme), false), c.says)
		})
	}
}
