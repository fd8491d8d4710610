//go:build mutants

package mutant

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

var chosen = func() (off []Guard) {
	for name := range strings.FieldsFuncSeq(os.Getenv(Env), func(r rune) bool { return r == ',' }) {
		if !slices.Contains(Guards(), Guard(name)) {
			panic(fmt.Sprintf("%s: there is no guard %q", Env, name))
		}
		off = append(off, Guard(name))
	}
	return off
}()

// Off tells whether a guard is turned off.
func Off(g Guard) bool { return slices.Contains(chosen, g) }
