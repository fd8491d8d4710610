// Package suggest finds what somebody may have meant who misspelt a name.
package suggest

import "fmt"

// Nearest is ", did you mean …?" with the candidate nearest to name, to be
// appended to an error, or nothing where none is near. Of equally near ones the
// first wins.
func Nearest(name string, candidates []string) string {
	best, at := "", len(name)/3+1
	for _, c := range candidates {
		if d := distance(name, c); d < at {
			best, at = c, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %s?", best)
}

// distance is Levenshtein's: how many bytes to insert, delete or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
