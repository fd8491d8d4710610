package arch_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// graph maps each package of ours to what its files import. Our packages are
// named relative to the module, all others by their full path.
type graph map[string][]string

func TestImports(t *testing.T) {
	imports, err := load(root)
	require.NoError(t, err)
	require.Contains(t, imports, "state", "the tree was not found")

	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			bound := r.bound(imports)
			if len(bound) == 0 {
				t.Skipf("no package matches %v yet", r.packages)
			}
			for _, offence := range r.check(imports) {
				t.Errorf("%s\n\tsince %s", offence, r.reason)
			}
		})
	}
}

// TestRulesBite proves each rule on an offence made up for it, and that the
// same packages without the forbidden import are left alone.
func TestRulesBite(t *testing.T) {
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			require.NotEmpty(t, r.reason)
			require.GreaterOrEqual(t, len(r.offence), 2)
			set := 0
			for _, list := range [][]string{r.never, r.only, r.together} {
				if list != nil {
					set++
				}
			}
			require.Equal(t, 1, set, "one of never, only and together")

			bad, good := graph{}, graph{}
			if r.together != nil {
				bad[r.offence[0]] = r.offence[1:]
				good[r.offence[0]] = r.offence[1:2]
			} else {
				last := len(r.offence) - 1
				bad[r.offence[last]], good[r.offence[last]] = nil, nil
				for i, p := range r.offence[:last] {
					bad[p] = []string{"fmt", r.offence[i+1]}
					good[p] = bad[p]
				}
				good[r.offence[last-1]] = []string{"fmt"}
			}
			require.Len(t, r.check(bad), 1)
			require.Empty(t, r.check(good))
		})
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"state", "state", true},
		{"state", "state/kv", false},
		{"state/...", "state", true},
		{"state/...", "state/kv", true},
		{"state/...", "statement", false},
		{"...", "anything/at/all", true},
		{"os/...", "os/exec", true},
		{support, "state/kv/kvtest", true},
		{support, "test/faultproxy", false},
		{std, "net/http", true},
		{std, "go.etcd.io/etcd/client/v3", false},
		{std, "C", false},
	} {
		require.Equal(t, c.want, match(c.pattern, c.path, graph{}), "%s on %s", c.pattern, c.path)
	}
	require.False(t, match(std, "state", graph{"state": nil}), "our own packages are not the standard library")
}

// bound answers the packages that r binds, sorted.
func (r rule) bound(g graph) []string {
	var names []string
	for name := range g {
		if matchAny(r.packages, name, g) && !matchAny(r.except, name, g) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// check answers one line for each import that r forbids.
func (r rule) check(g graph) []string {
	var offences []string
	for _, name := range r.bound(g) {
		if r.together != nil {
			var met []string
			for _, pattern := range r.together {
				if i := slices.IndexFunc(g[name], func(p string) bool { return match(pattern, p, g) }); i >= 0 {
					met = append(met, g[name][i])
				}
			}
			if len(met) > 1 {
				offences = append(offences, fmt.Sprintf("%s imports %s", name, strings.Join(met, " and ")))
			}
			continue
		}
		r.walk(g, []string{name}, map[string]bool{name: true}, func(chain []string) {
			// What another bound package does is reported there.
			if len(chain) > 2 && matchAny(r.packages, chain[len(chain)-2], g) && !matchAny(r.except, chain[len(chain)-2], g) {
				return
			}
			offences = append(offences, strings.Join(chain, " imports "))
		})
	}
	return offences
}

// walk calls report with the chain of imports to each forbidden package,
// through our own packages too where the rule is deep.
func (r rule) walk(g graph, chain []string, seen map[string]bool, report func(chain []string)) {
	for _, p := range g[chain[len(chain)-1]] {
		if seen[p] {
			continue
		}
		seen[p] = true
		next := append(slices.Clone(chain), p)
		if matchAny(r.never, p, g) || r.only != nil && !matchAny(r.only, p, g) {
			report(next)
			continue
		}
		if r.deep {
			r.walk(g, next, seen, report)
		}
	}
}

func matchAny(patterns []string, name string, g graph) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, name, g) })
}

// match tells whether the package called name is one that pattern means.
func match(pattern, name string, g graph) bool {
	if pattern == "..." {
		return true
	}
	if pattern == std {
		first, _, _ := strings.Cut(name, "/")
		_, ours := g[name]
		return !ours && name != "C" && !strings.Contains(first, ".")
	}
	if pattern == support {
		return strings.HasSuffix(name, "test")
	}
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == base || strings.HasPrefix(name, base+"/")
	}
	return name == pattern
}

// load reads the imports of all packages below dir. Test files are left out,
// and so are nested modules, test data and hidden folders.
func load(dir string) (graph, error) {
	g := graph{}
	files := token.NewFileSet()
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return enter(dir, file, entry.Name())
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		syntax, err := parser.ParseFile(files, file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, filepath.Dir(file))
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		g[name] = slices.Clip(g[name]) // present even without an import
		for _, spec := range syntax.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return fmt.Errorf("%s: import %s: %w", file, spec.Path.Value, err)
			}
			g[name] = append(g[name], ownName(imported))
		}
		return nil
	})
	for name := range g {
		slices.Sort(g[name])
		g[name] = slices.Compact(g[name])
	}
	return g, err
}

// enter answers fs.SkipDir for a folder whose packages are not ours to check.
func enter(root, dir, name string) error {
	if dir == root {
		return nil
	}
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "node_modules" {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

// ownName answers the name of a package of ours relative to the module, and
// any other name as it is.
func ownName(imported string) string {
	if imported == self {
		return "."
	}
	return path.Clean(strings.TrimPrefix(imported, self+"/"))
}
