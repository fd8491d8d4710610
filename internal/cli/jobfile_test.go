package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

func parse(t *testing.T, content string) ([]fileJob, error) {
	t.Helper()
	return readJobs([]string{"-"}, strings.NewReader(content), &namespace{name: "default"})
}

func TestParseKeepsScheduleTextsExactly(t *testing.T) {
	jobs, err := parse(t, `
name: a
spec:
  schedules:
  - "*/2 * * * *"
  - '@hourly'
  - 0 0 * * 1,5
  - CRON_TZ=Europe/Berlin 0 5 * * *
  labels: {"a:b": "c#d"}
  noop:
`)
	require.NoError(t, err)
	require.Equal(t, []string{"*/2 * * * *", "@hourly", "0 0 * * 1,5", "CRON_TZ=Europe/Berlin 0 5 * * *"}, jobs[0].job.GetSpec().GetSchedules())
	require.Equal(t, map[string]string{"a:b": "c#d"}, jobs[0].job.GetSpec().GetLabels())
	require.NotNil(t, jobs[0].job.GetSpec().GetNoop())
}

func TestParseExplainsMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		want    []string
	}{
		"bare star": {
			"name: a\nspec:\n  schedules:\n  - */5 * * * *\n  noop: {}\n",
			[]string{`document 1: line 4: */5 * * * * must stand in quotes, since it begins with "*": "*/5 * * * *" (YAML says: `},
		},
		"bare star in a flow": {
			"# x\n---\nname: a\nspec: {schedules: [* * * * *]}\n",
			[]string{`document 1: line 4: * * * * * must stand in quotes`},
		},
		"bare at": {
			"name: b\nspec: {noop: {}}\n---\nname: a\nspec:\n  schedules: [@hourly]\n",
			[]string{`document 2: line 6: @hourly must stand in quotes, since it begins with "@": "@hourly"`},
		},
		"comma in a flow": {
			"name: a\nspec: {schedules: [0 0 * * 1,5], noop: {}}\n",
			[]string{"document 1: spec.schedules[1]: must be text, not 5: put it in quotes"},
		},
		"unknown fields, all of them": {
			"name: a\nspecs: {}\nspec:\n  schedule: x\n  comand: {}\n  command: {arg: [a]}\n",
			[]string{
				"specs: no such field, did you mean spec?", "spec.schedule: no such field, did you mean schedules?",
				"spec.comand: no such field, did you mean command?", "spec.command.arg: no such field, did you mean argv?",
			},
		},
		"types": {
			"name: a\nspec:\n  schedules: x\n  timeout: 5\n  labels: {a: 1, b: true}\n  overlap: never\n  http: {body: '{}', expected_codes: [x]}\n  command: sleep 1\n",
			[]string{
				`spec.schedules: must be a list, not "x"`, "spec.timeout: must be a duration such as 500ms, 90s, 10m or 24h, not 5",
				"spec.labels[a]: must be text, not 1", "spec.labels[b]: must be text, not true",
				`spec.overlap: must be one of skip, allow, queue, cancel, replace, not "never"`, "spec.http.body: must be base64",
				`spec.http.expected_codes[0]: must be a whole number, not "x"`, `spec.command: must have fields, not "sleep 1"`,
			},
		},
		"two targets":              {"name: a\nspec: {noop: {}, command: {argv: [a]}}\n", []string{"document 1: "}},
		"two spellings":            {"name: a\nspec: {noop: {}, time_zone: UTC, timeZone: UTC}\n", []string{"spec.time_zone: is there twice, in two spellings"}},
		"key twice":                {"name: a\nname: b\n", []string{`key "name" already set in map`}},
		"name and spec":            {"spec: {noop: {}}\n---\nname: b\n---\nname: a/b/c\nspec: {noop: {}}\n", []string{"document 1: name: required", "document 2: spec: required", `document 3: name: "a/b/c" is not a job's name`}},
		"same job twice":           {"name: a\nspec: {noop: {}}\n---\nname: default/a\nspec: {noop: {}}\n", []string{"document 2: name: default/a is in standard input: document 1 already"}},
		"nothing":                  {"# only a comment\n---\n", []string{"no job in -"}},
		"not a job":                {"- 5\n- name: a\n  spec: {noop: {}}\n", []string{"document 1: job 1: must have fields, not 5"}},
		"line of a later document": {"name: a\nspec: {noop: {}}\n---\nname: [\n", []string{"document 2: line "}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(t, c.content)
			require.Error(t, err)
			require.Equal(t, exitUsage, exitStatus(err))
			for _, want := range c.want {
				require.Contains(t, err.Error(), want)
			}
			require.NotContains(t, err.Error(), "proto:")
		})
	}
}

func TestParseTakesCRLFAndEndMarks(t *testing.T) {
	jobs, err := parse(t, "---\r\nname: a\r\nspec: {noop: {}}\r\n...\r\n---\r\nname: b\r\nspec:\r\n  command:\r\n    shell: |\r\n      echo --- x\r\n")
	require.NoError(t, err)
	require.Len(t, jobs, 2)
	require.Equal(t, "standard input: document 2", jobs[1].where)
}

// Whatever the API can say in JSON can be applied, and means the same.
func TestParseReadsTheCanonicalForm(t *testing.T) {
	text := rapid.StringMatching(`[ -~äöü\n]{0,20}`)
	rapid.Check(t, func(rt *rapid.T) {
		spec := &leaderdv1.JobSpec{
			Description: text.Draw(rt, "description"),
			Labels:      rapid.MapOf(text, text).Draw(rt, "labels"),
			Schedules:   rapid.SliceOf(text).Draw(rt, "schedules"),
			Overlap:     leaderdv1.Overlap(rapid.Int32Range(1, 2).Draw(rt, "overlap")),
			Target: &leaderdv1.JobSpec_Http{Http: &leaderdv1.Http{
				Body:          rapid.SliceOf(rapid.Byte()).Draw(rt, "body"),
				ExpectedCodes: rapid.SliceOf(rapid.Int32()).Draw(rt, "codes"),
			}},
		}
		want := &leaderdv1.Job{Name: "namespaces/default/jobs/a", Spec: spec, Etag: "e"}
		content, err := protojson.Marshal(want)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := readJobs([]string{"-"}, strings.NewReader(string(content)), &namespace{name: "default"})
		if err != nil {
			rt.Fatalf("%s: %v", content, err)
		}
		if !proto.Equal(want, got[0].job) {
			rt.Fatalf("%s became %v", content, got[0].job)
		}
	})
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.000000000s", 1500 * time.Millisecond: "1.500000000s", -time.Nanosecond: "-0.000000001s", 90 * time.Minute: "5400.000000000s",
	} {
		require.Equal(t, want, seconds(d))
	}
}

func TestNames(t *testing.T) {
	n := &namespace{name: "team"}
	for in, want := range map[string]string{
		"a": "namespaces/team/jobs/a", "x/a": "namespaces/x/jobs/a", "namespaces/y/jobs/a": "namespaces/y/jobs/a",
	} {
		got, err := n.job(in)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// What the readers of YAML and JSON would pass over, or blame on nothing, is told with
// its place.
func TestParseNamesWhatIsNoValue(t *testing.T) {
	for doc, want := range map[string]string{
		"name: a\nspec:\n  timeout: .nan\n":                                 "spec.timeout: NaN is no number that can be given",
		"name: a\nspec:\n  schedules: ['@daily']\n  jitter: -.inf\n":        "spec.jitter: -Inf is no number that can be given",
		"name: a\nspec:\n  schedules: [1, .inf]\n":                          "spec.schedules[1]: +Inf is no number that can be given",
		"{\n\t\"name\": \"a\",\n\t\"spec\": {\"description\": \"\xff\"}\n}": "line 3: byte 27 is 0xff, which is no UTF-8",
		"name: a\ndescription: \xc3(\n":                                     "line 2: byte 14 is 0xc3, which is no UTF-8",
	} {
		_, err := parseDocument([]byte(doc))
		require.ErrorContains(t, err, want, "%q", doc)
	}
}
