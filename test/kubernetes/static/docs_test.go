package static

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var valuesFence = regexp.MustCompile("(?ms)^```yaml\n# values\n(.*?)^```$")

// TestDocumentedValues renders every example of values in the documentation, on top
// of the defaults.
func TestDocumentedValues(t *testing.T) {
	pages, err := filepath.Glob("../../../docs/*.md")
	require.NoError(t, err)
	rendered := 0
	for _, page := range pages {
		for _, example := range valuesFence.FindAllSubmatch(content(t, page), -1) {
			file := filepath.Join(t.TempDir(), "values.yaml")
			write(t, file, example[1])
			render(t, "--values", file)
			rendered++
		}
	}
	require.GreaterOrEqual(t, rendered, 2)
}
