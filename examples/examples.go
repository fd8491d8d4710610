// Package examples holds job files that "leaderd dev" starts with and that the
// documentation shows.
package examples

import "embed"

// Jobs has the files jobs/*.yaml.
//
//go:embed jobs/*.yaml
var Jobs embed.FS
