// Package docs_test holds the pages against the program: what they name exists,
// what exists is named, and their examples are carried out.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = ".."

// page is a document, in parts.
type page struct {
	name  string // relative to the root
	text  string
	prose string   // without fences
	code  []string // lines of fences other than YAML, and code spans
	yaml  []string // the fences of that kind
}

var (
	fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	span  = regexp.MustCompile("`([^`\n]+)`")
)

func readPage(t *testing.T, name string) page {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	require.NoError(t, err)
	p := page{name: name, text: string(content)}
	for _, m := range fence.FindAllStringSubmatch(p.text, -1) {
		if m[1] == "yaml" {
			p.yaml = append(p.yaml, m[2])
			continue
		}
		p.code = append(p.code, strings.Split(m[2], "\n")...)
	}
	p.prose = fence.ReplaceAllString(p.text, "")
	require.NotContains(t, p.prose, "```", "%s has a fence that is not closed", name)
	for _, m := range span.FindAllStringSubmatch(p.prose, -1) {
		p.code = append(p.code, m[1])
	}
	return p
}

// pages are all of them.
func pages(t *testing.T) []page {
	t.Helper()
	names := []string{"README.md", "CHANGELOG.md"}
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			names = append(names, "docs/"+filepath.ToSlash(path))
		}
		return err
	}))
	var all []page
	for _, name := range names {
		all = append(all, readPage(t, name))
	}
	return all
}

// section is what follows a heading, up to the next one of its depth or less.
func (p page) section(t *testing.T, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(p.text, "\n"+heading+"\n")
	require.True(t, ok, "%s has no %q", p.name, heading)
	depth := strings.IndexByte(heading, ' ')
	for i := 1; i <= depth; i++ {
		rest, _, _ = strings.Cut(rest, "\n"+strings.Repeat("#", i)+" ")
	}
	return rest
}

// rows are the cells of the tables in text, without their headers.
func rows(text string) [][]string {
	var out [][]string
	body := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			body = false
		case strings.HasPrefix(line, "|---"):
			body = true
		case body:
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			out = append(out, cells)
		}
	}
	return out
}

// unquoted is a cell without its code marks.
func unquoted(cell string) string { return strings.Trim(cell, "`") }

var (
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headings  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInSlug = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// anchors are the targets of links into a page, as code hosts make them.
func (p page) anchors() map[string]bool {
	out := map[string]bool{"": true}
	for _, m := range headings.FindAllStringSubmatch(p.prose, -1) {
		out[strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return out
}

func TestLinksResolve(t *testing.T) {
	for _, p := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(p.prose, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := p.name
			if target != "" {
				file = filepath.ToSlash(filepath.Join(filepath.Dir(p.name), target))
			}
			_, err := os.Stat(filepath.Join(root, file))
			require.NoError(t, err, "%s links to %s", p.name, m[1])
			if filepath.Ext(file) == ".md" {
				require.True(t, readPage(t, file).anchors()[anchor], "%s links to %s, which has no such heading", p.name, m[1])
			}
		}
	}
}

// TestEveryPageIsReached follows the links from the README.
func TestEveryPageIsReached(t *testing.T) {
	linked := map[string]bool{"README.md": true}
	for _, p := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(p.prose, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target != "" && !strings.Contains(target, "://") {
				linked[filepath.ToSlash(filepath.Join(filepath.Dir(p.name), target))] = true
			}
		}
	}
	for _, p := range pages(t) {
		require.True(t, linked[p.name], "no page links to %s", p.name)
	}
}
