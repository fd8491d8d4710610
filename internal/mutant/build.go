//go:build mutants

package mutant

import (
	"fmt"
	"os"
	"slices"
)

var chosen = func() Guard {
	g := Guard(os.Getenv(Env))
	if g != "" && !slices.Contains(Guards(), g) {
		panic(fmt.Sprintf("%s: there is no guard %q", Env, g))
	}
	return g
}()

// Off tells whether a guard is turned off.
func Off(g Guard) bool { return g == chosen }
