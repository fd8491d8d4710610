// Mutants proves that the checker bites. It builds the simulation with the tag
// "mutants", turns off one guard of package mutant at a time, and expects each to
// be caught within a bounded number of seeds, or by the scenario that is named
// for it. What nothing catches is either a hole in the tests or a guard too many.
// With all guards in place the same seeds and tests must be clean.
//
// It is what `make mutants` calls, from the repository's root. The runs repeat
// exactly (see package exact), so the table that it prints does too, as long as
// the code stays the same.
package main
