package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	binDir  = "usr/local/bin"
	dataDir = "var/lib/leaderd"
)

// spec is what goes into the archive.
type spec struct {
	name     string
	version  string
	revision string
	created  time.Time
	licence  []byte
	programs []program
}

// reference is the name under which engines know the image.
func (s spec) reference() string { return s.name + ":" + s.version }

func (s spec) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":       "leaderd",
		"org.opencontainers.image.description": "Cron and job runs for a fleet, with no single point of failure",
		"org.opencontainers.image.version":     s.version,
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.created":     s.created.Format(time.RFC3339),
	}
	if s.revision != "" {
		labels["org.opencontainers.image.revision"] = s.revision
	}
	return labels
}

// index is one image for each program.
func (s spec) index() (v1.ImageIndex, error) {
	files, err := s.base()
	if err != nil {
		return nil, err
	}
	base, err := layer(s.created, files)
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range s.programs {
		image, err := s.image(base, p)
		if err != nil {
			return nil, fmt.Errorf("image for %s: %w", p.arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.arch}},
		})
	}
	return index, nil
}

func (s spec) image(base v1.Layer, p program) (v1.Image, error) {
	top, err := layer(s.created, []file{{name: binDir + "/leaderd", mode: 0o755, content: p.content}})
	if err != nil {
		return nil, err
	}
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: "linux", Architecture: p.arch, Created: v1.Time{Time: s.created},
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:         strconv.Itoa(user) + ":" + strconv.Itoa(user),
			Entrypoint:   []string{"/" + binDir + "/leaderd"},
			Cmd:          []string{"serve"},
			Env:          []string{"PATH=/" + binDir, "LEADERD_DATA_DIR=/" + dataDir},
			WorkingDir:   "/" + dataDir,
			ExposedPorts: map[string]struct{}{"7400/tcp": {}, "7401/tcp": {}},
			Labels:       s.labels(),
		},
	})
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: s.created}
	return mutate.Append(image,
		mutate.Addendum{Layer: base, History: v1.History{Created: created, CreatedBy: "certificate authorities, user, folders"}},
		mutate.Addendum{Layer: top, History: v1.History{Created: created, CreatedBy: "leaderd " + s.version}})
}

// archive writes the index as an OCI layout in a tar file, named for the engines
// that import it: containerd reads one annotation, others read the other.
func (s spec) archive(target string, index v1.ImageIndex) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(target), ".image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          s.reference(),
		"org.opencontainers.image.ref.name": s.version,
	})); err != nil {
		return err
	}
	partial := filepath.Join(dir, "archive.tar")
	if err := s.pack(partial, dir); err != nil {
		return err
	}
	return os.Rename(partial, target)
}

// pack writes the files of dir to target, in order of their names.
func (s spec) pack(target, dir string) (err error) {
	out, err := os.OpenFile(filepath.Clean(target), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == target || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return s.packOne(w, path, filepath.ToSlash(name), entry.IsDir())
	})
	return errors.Join(err, w.Close())
}

func (s spec) packOne(w *tar.Writer, path, name string, isDir bool) error {
	header := &tar.Header{Name: name, Mode: 0o644, ModTime: s.created, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
	if isDir {
		header.Name, header.Mode, header.Typeflag = name+"/", 0o755, tar.TypeDir
		return w.WriteHeader(header)
	}
	in, err := os.Open(filepath.Clean(path))
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it was only read
	info, err := in.Stat()
	if err != nil {
		return err
	}
	header.Size = info.Size()
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return err
}
