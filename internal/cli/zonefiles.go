package cli

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// openZones answers a loader of zones from other data: a directory such as
// /usr/share/zoneinfo, or a zip file such as Go's. It reads no more than the zones
// that are asked for. version is the release that the data says to be of, empty
// where it does not.
func openZones(path string) (load func(name string) (*time.Location, error), version string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, "", err
	}
	var files fs.FS
	if info.IsDir() {
		files = os.DirFS(path)
	} else {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, "", err
		}
		if files, err = zip.NewReader(bytes.NewReader(content), int64(len(content))); err != nil {
			return nil, "", fmt.Errorf("%s: %w", path, err)
		}
	}
	// tzdata.zi begins with "# version 2026a", and +VERSION is that alone.
	if content, err := fs.ReadFile(files, "tzdata.zi"); err == nil {
		line, _, _ := strings.Cut(string(content), "\n")
		version = strings.TrimSpace(strings.TrimPrefix(line, "# version"))
	} else if content, err := fs.ReadFile(files, "+VERSION"); err == nil {
		version = strings.TrimSpace(string(content))
	}
	return func(name string) (*time.Location, error) {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		return time.LoadLocationFromTZData(name, data)
	}, version, nil
}
