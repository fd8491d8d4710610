//go:build exact

package exact

import _ "unsafe" // for the link

// On tells whether the program repeats its runs exactly.
const On = true

// Begin begins the random numbers of the bubble that calls it, from a seed. It
// does nothing where the program is not exact.
//
//go:linkname Begin runtime.simSeed
func Begin(seed uint64)
