package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v2"

	leaderdv1 "github.com/leaderd/leaderd/proto/leaderd/v1"
)

// jobExtensions are the files of a directory that are read.
var jobExtensions = []string{".yaml", ".yml", ".json"}

// fileJob is a job and where it was read.
type fileJob struct {
	where string // jobs.yaml: document 2
	job   *leaderdv1.Job
	// bad are the paths of fields that could not be read, and are left out of job.
	bad []string
}

// readJobs reads all jobs of the files, of the directories' files and, for "-",
// of stdin. The error has everything that is wrong with any of them; the jobs
// that have a name are answered beside it.
func readJobs(paths []string, stdin io.Reader, ns *namespace) ([]fileJob, error) {
	var out []fileJob
	var errs []error
	for _, path := range paths {
		if path == "-" {
			content, err := io.ReadAll(stdin)
			if err != nil {
				return nil, fmt.Errorf("read standard input: %w", err)
			}
			jobs, err := parseJobs("standard input", content, ns)
			out, errs = append(out, jobs...), append(errs, err)
			continue
		}
		files, err := jobFiles(path)
		if err != nil {
			errs = append(errs, err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			jobs, err := parseJobs(file, content, ns)
			out, errs = append(out, jobs...), append(errs, err)
		}
	}
	first := map[string]string{}
	for _, j := range out {
		if before, ok := first[j.job.GetName()]; ok {
			errs = append(errs, fmt.Errorf("%s: name: %s is in %s already", j.where, shortJob(j.job.GetName()), before))
			continue
		}
		first[j.job.GetName()] = j.where
	}
	if err := errors.Join(errs...); err != nil {
		return out, usageError{err}
	}
	if len(out) == 0 {
		return nil, usagef("no job in %s", strings.Join(paths, ", "))
	}
	return out, nil
}

// jobFiles is path itself, or the job files of the directory that it is, in order
// of name; directories below it and hidden files are not read.
func jobFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fileProblem(err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var out []string
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || !slices.Contains(jobExtensions, filepath.Ext(e.Name())) {
			continue
		}
		file := filepath.Join(path, e.Name())
		// A mounted ConfigMap has links to files.
		if info, err := os.Stat(file); err != nil {
			errs = append(errs, fileProblem(err))
			continue
		} else if info.Mode().Type() == fs.ModeDir {
			continue
		}
		out = append(out, file)
	}
	if err := errors.Join(errs...); err != nil {
		return out, err
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no *.yaml, *.yml or *.json file in it", path)
	}
	return out, nil
}

// fileProblem is why a file cannot be looked at, in words where the system's tell
// little.
func fileProblem(err error) error {
	failed, ok := errors.AsType[*fs.PathError](err)
	switch {
	case !ok:
		return err
	case errors.Is(err, syscall.ELOOP):
		return fmt.Errorf("%s: is a link that leads back to itself", failed.Path)
	case errors.Is(err, fs.ErrNotExist):
		if info, err := os.Lstat(failed.Path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s: is a link to a file that does not exist", failed.Path)
		}
		return fmt.Errorf("%s: there is no such file", failed.Path)
	}
	return fmt.Errorf("%s: %w", failed.Path, failed.Err)
}

// parseJobs reads the documents of one file. A document is a job or a list of
// jobs, in the form of the API's JSON with what normaliser lets people write.
func parseJobs(file string, content []byte, ns *namespace) ([]fileJob, error) {
	var out []fileJob
	var errs []error
	number := 0
	for _, doc := range documents(content) {
		tree, err := parseDocument(doc)
		if err == nil && tree == nil { // comments alone
			continue
		}
		number++
		where := fmt.Sprintf("%s: document %d", file, number)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
			continue
		}
		items, isList := tree.([]any)
		if !isList {
			items = []any{tree}
		}
		for i, item := range items {
			at := where
			if isList {
				at = fmt.Sprintf("%s: job %d", where, i+1)
			}
			job, bad, problems := parseJob(item, ns)
			for _, p := range problems {
				errs = append(errs, fmt.Errorf("%s: %w", at, p))
			}
			if job != nil {
				out = append(out, fileJob{where: at, job: job, bad: bad})
			}
		}
	}
	return out, errors.Join(errs...)
}

// parseJob reads one job. What can be read of it is answered beside the problems
// if it has a name, with the paths of what cannot.
func parseJob(tree any, ns *namespace) (job *leaderdv1.Job, bad []string, problems []error) {
	var n normaliser
	job, errs := n.job(tree)
	if job == nil {
		return nil, nil, errs
	}
	named := false
	if job.GetName() == "" {
		if !slices.Contains(n.bad, "name") {
			errs = append(errs, errors.New("name: required"))
		}
	} else if name, err := ns.job(job.GetName()); err != nil {
		errs = append(errs, fmt.Errorf("name: %w", err))
	} else {
		job.Name, named = name, true
	}
	if job.GetSpec() == nil && !slices.Contains(n.bad, "spec") {
		errs = append(errs, errors.New("spec: required"))
	}
	if !named || job.GetSpec() == nil {
		return nil, nil, errs
	}
	// What get prints can be edited and applied: only these are the owner's. The
	// etag is among them, so that such an edit overwrites nobody else's.
	return &leaderdv1.Job{Name: job.GetName(), Spec: job.GetSpec(), Etag: job.GetEtag()}, n.bad, errs
}

// job reads a job as far as it can be read; nil: it cannot at all.
func (n *normaliser) job(tree any) (*leaderdv1.Job, []error) {
	job := &leaderdv1.Job{}
	tree = n.message(job.ProtoReflect().Descriptor(), tree, "")
	content, err := json.Marshal(tree)
	if err != nil {
		return nil, append(n.errs, err)
	}
	if err := protojson.Unmarshal(content, job); err != nil {
		if n.errs == nil {
			n.errs = []error{errors.New(protoProblem(err))}
		}
		return nil, n.errs
	}
	return job, n.errs
}

// protoProblem is what protojson complains about, without its own words, which
// change from build to build.
func protoProblem(err error) string {
	_, text, ok := strings.Cut(err.Error(), "): ")
	if !ok {
		_, text, _ = strings.Cut(err.Error(), ":")
	}
	return oneLine(text)
}

// separator is a line that begins a new document. YAML lets no content begin a
// line so.
var separator = regexp.MustCompile(`(?m)^(---|\.\.\.)([ \t\r].*)?$`)

// documents splits a YAML stream. Each document keeps its place, by empty lines
// before it, so that line numbers in errors are those of the file.
func documents(content []byte) [][]byte {
	var out [][]byte
	start, lines := 0, 0
	add := func(end int) {
		doc := content[start:end]
		out = append(out, append(bytes.Repeat([]byte("\n"), lines), doc...))
	}
	for _, m := range separator.FindAllIndex(content, -1) {
		add(m[0])
		// What follows the mark on its line belongs to the document.
		start = m[0] + 3
		lines = bytes.Count(content[:start], []byte("\n"))
	}
	add(len(content))
	return out
}

// parseDocument answers the document's tree, with numbers as json.Number.
func parseDocument(doc []byte) (any, error) {
	content, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		if bad := notUTF8(doc); bad != nil {
			return nil, bad // which JSON's reader would replace in silence
		}
		// YAML takes no tabs, JSON does.
		if tree, jsonErr := decode(doc); jsonErr == nil {
			return tree, nil
		}
		if bad := noNumber(doc); bad != nil {
			return nil, bad
		}
		return nil, yamlProblem(err, doc)
	}
	return decode(content)
}

// notUTF8 tells where a document is no UTF-8; nil: nowhere.
func notUTF8(doc []byte) error {
	for i, line := range bytes.Split(doc, []byte("\n")) {
		for at := 0; at < len(line); {
			r, size := utf8.DecodeRune(line[at:])
			if r == utf8.RuneError && size == 1 {
				return fmt.Errorf("line %d: byte %d is 0x%02x, which is no UTF-8", i+1, at+1, line[at])
			}
			at += size
		}
	}
	return nil
}

// noNumber names the field of a document that has one of YAML's numbers which are
// none: .nan, .inf and -.inf. JSON, and so a job, has no way to write them.
func noNumber(doc []byte) error {
	var tree any
	if err := goyaml.Unmarshal(doc, &tree); err != nil {
		return nil //nolint:nilerr // that is told elsewhere
	}
	var find func(value any, path string) error
	find = func(value any, path string) error {
		switch v := value.(type) {
		case float64:
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("%s: %v is no number that can be given", path, v)
			}
		case []any:
			for i := range v {
				if err := find(v[i], fmt.Sprintf("%s[%d]", path, i)); err != nil {
					return err
				}
			}
		case map[any]any:
			keys := map[string]any{}
			for key, field := range v {
				keys[fmt.Sprint(key)] = field
			}
			for _, key := range slices.Sorted(maps.Keys(keys)) {
				if err := find(keys[key], join(path, key)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return find(tree, "")
}

func decode(content []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(content))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one value")
	}
	return tree, nil
}

var (
	yamlPrefix = regexp.MustCompile(`^(error converting YAML to JSON: )?(yaml: )?(unmarshal errors:\s+)?`)
	// bareSchedule is a value that begins with a character that means something
	// else to YAML: an alias, or nothing at all.
	bareSchedule = regexp.MustCompile(`^[^#"']*(?:[-:,\[])\s*([*@][^"'#\],]*)`)
	// bareWords are YAML's words for that.
	bareWords = regexp.MustCompile(`unknown anchor|did not find expected|cannot start any token|while scanning an alias`)
	// tabIndent is a line that is indented by a tab.
	tabIndent = regexp.MustCompile(`^ *\t[ \t]*[^ \t#\r]`)
)

// yamlProblem is what YAML complains about, and what may be the reason: a line
// that is indented by a tab, or a schedule without quotes.
func yamlProblem(err error, doc []byte) error {
	text := oneLine(yamlPrefix.ReplaceAllString(err.Error(), ""))
	if !bareWords.MatchString(text) {
		if strings.Contains(text, "excessive aliasing") {
			return errors.New("its aliases (*name) repeat so much that it is not read")
		}
		return errors.New(text)
	}
	for i, line := range strings.Split(string(doc), "\n") {
		if tabIndent.MatchString(line) {
			return fmt.Errorf("line %d: is indented by a tab; YAML takes spaces only (YAML says: %s)", i+1, text)
		}
		if m := bareSchedule.FindStringSubmatch(line); m != nil {
			value := strings.TrimSpace(m[1])
			return fmt.Errorf("line %d: %s must stand in quotes, since it begins with %q: %q (YAML says: %s)",
				i+1, value, value[:1], value, text)
		}
	}
	return errors.New(text)
}
