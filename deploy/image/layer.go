package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is who the program runs as: no name that a host knows, and the number by
// which Kubernetes can tell that it is not root.
const user = 65532

// file is an entry of a layer; a folder where content is nil.
type file struct {
	name    string // without a leading slash
	mode    int64
	owner   int
	content []byte
}

// layer packs files in the order given, all of them dated alike.
func layer(date time.Time, files []file) (v1.Layer, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, f := range files {
		header := &tar.Header{
			Name: f.name, Mode: f.mode, Uid: f.owner, Gid: f.owner, ModTime: date,
			Typeflag: tar.TypeReg, Size: int64(len(f.content)), Format: tar.FormatUSTAR,
		}
		if f.content == nil {
			header.Typeflag = tar.TypeDir
			header.Name += "/"
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}

// base is what the program finds around it. It changes seldom, so it is a layer of
// its own, which registries and nodes then have already.
func (s spec) base() ([]file, error) {
	authorities, err := roots()
	if err != nil {
		return nil, err
	}
	files := []file{
		{name: "etc", mode: 0o755},
		{name: "etc/group", mode: 0o644, content: fmt.Appendf(nil, "leaderd:x:%d:\n", user)},
		{name: "etc/passwd", mode: 0o644, content: fmt.Appendf(nil, "leaderd:x:%d:%[1]d:leaderd:%s:/sbin/nologin\n", user, "/"+dataDir)},
		{name: "etc/ssl", mode: 0o755},
		{name: "etc/ssl/certs", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: authorities},
		{name: "tmp", mode: 0o1777},
		{name: "usr", mode: 0o755},
		{name: "usr/local", mode: 0o755},
		{name: "usr/local/bin", mode: 0o755},
		{name: "var", mode: 0o755},
		{name: "var/lib", mode: 0o755},
		{name: dataDir, mode: 0o750, owner: user},
	}
	if s.licence != nil {
		files = append(files, file{name: "LICENSE", mode: 0o644, content: s.licence})
	}
	return files, nil
}
