// Package zoneinfo holds the data of the IANA time zones that schedules are read
// in. It is a copy of what the Go release brings, kept here so that a program has
// one version of it, which it can name, whatever the machine has installed: two
// nodes of one version of leaderd never disagree about a slot.
//
// The package holds data and no rules. It reads no file and no variable of the
// environment. The tz database is in the public domain.
//
// A newer Go release brings newer data: run go generate.
package zoneinfo

//go:generate sh -c "cp \"$(go env GOROOT)/lib/time/zoneinfo.zip\" zoneinfo.zip"
//go:generate sh -c "sed -n s/^CODE=//p \"$(go env GOROOT)/lib/time/update.bash\" > version.txt"

import (
	"archive/zip"
	"bytes"
	_ "embed" // for the data
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

var (
	//go:embed zoneinfo.zip
	archive []byte
	//go:embed version.txt
	version string
)

// ErrUnknown: no zone has the name.
var ErrUnknown = errors.New("unknown time zone")

// Version is the release of the tz database, such as 2025c.
func Version() string { return strings.TrimSpace(version) }

// files are the zones by name. The archive is a constant: that it can be read is
// tested, not handled.
var files = sync.OnceValue(func() map[string]*zip.File {
	r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		panic(fmt.Sprintf("zone data of the program: %v", err))
	}
	out := make(map[string]*zip.File, len(r.File))
	for _, f := range r.File {
		// Factory is what an unconfigured machine shows, no place.
		if !strings.HasSuffix(f.Name, "/") && f.Name != "Factory" {
			out[f.Name] = f
		}
	}
	return out
})

// Names are all zones, links among them, in order.
func Names() []string { return slices.Sorted(maps.Keys(files())) }

// Load makes the zone of exactly that name, anew on each call. The error wraps
// ErrUnknown where there is none.
func Load(name string) (*time.Location, error) {
	f, ok := files()[name]
	if !ok {
		return nil, fmt.Errorf("%w %q", ErrUnknown, name)
	}
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("zone data of %s: %w", name, err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("zone data of %s: %w", name, err)
	}
	loc, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, fmt.Errorf("zone data of %s: %w", name, err)
	}
	return loc, nil
}
