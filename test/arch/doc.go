// Package arch holds tests of the whole tree: which package may import which,
// and that every direct dependency is accounted for. It has no other code.
//
// The rules are one table (rules_test.go). They are read from the sources
// themselves, build constraints or not, so a forbidden import cannot hide
// behind a tag. Test files are free: a test may import what it likes.
package arch
