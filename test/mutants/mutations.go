package main

import "github.com/leaderd/leaderd/internal/mutant"

// mutations are each guard by itself, and pairs of guards of which one covers for
// the other.
func mutations() []mutation {
	var all []mutation
	for _, g := range mutant.Guards() {
		m := special[g]
		m.off = []mutant.Guard{g}
		all = append(all, m)
	}
	return append(all, pairs...)
}

// special are mutations that take a test of their own.
var special = map[mutant.Guard]mutation{}

var pairs []mutation
