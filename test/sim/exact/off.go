//go:build !exact

package exact

// On tells whether the program repeats its runs exactly.
const On = false

// Begin begins the random numbers of the bubble that calls it, from a seed. It
// does nothing where the program is not exact.
func Begin(uint64) {}
