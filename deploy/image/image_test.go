package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

// program64 makes the least file that is a Linux program, with segments of the
// types given.
func program64(t *testing.T, machine elf.Machine, segments ...elf.ProgType) string {
	t.Helper()
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: uint16(len(segments)),
		Shentsize: 64,
	}
	var b bytes.Buffer
	require.NoError(t, binary.Write(&b, binary.LittleEndian, header))
	for _, kind := range segments {
		require.NoError(t, binary.Write(&b, binary.LittleEndian, elf.Prog64{Type: uint32(kind)}))
	}
	path := filepath.Join(t.TempDir(), "leaderd")
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	return path
}

// built makes an archive of the same inputs in a place of its own.
func built(t *testing.T, amd64, arm64 string) (archive []byte, said string) {
	t.Helper()
	licence := filepath.Join(t.TempDir(), "LICENSE")
	require.NoError(t, os.WriteFile(licence, []byte("Apache License"), 0o600))
	target := filepath.Join(t.TempDir(), "image.tar")
	var out bytes.Buffer
	require.NoError(t, run([]string{
		"-o", target, "-version", "1.2.3", "-revision", "abc", "-created", "1790000000", "-licence", licence,
		"amd64=" + amd64, "arm64=" + arm64,
	}, &out))
	archive, err := os.ReadFile(target)
	require.NoError(t, err)
	entries, err := os.ReadDir(filepath.Dir(target))
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing is left beside the archive")
	return archive, out.String()[len(target):]
}

func TestSameInputsMakeTheSameBytes(t *testing.T) {
	amd64, arm64 := program64(t, elf.EM_X86_64), program64(t, elf.EM_AARCH64)
	once, saidOnce := built(t, amd64, arm64)
	twice, saidTwice := built(t, amd64, arm64)
	require.Equal(t, saidOnce, saidTwice)
	require.True(t, bytes.Equal(once, twice))
	require.Contains(t, saidOnce, "leaderd/leaderd:1.2.3  sha256:")
}

func TestImage(t *testing.T) {
	amd64, arm64 := program64(t, elf.EM_X86_64), program64(t, elf.EM_AARCH64)
	archive, _ := built(t, amd64, arm64)
	outer, err := layout.ImageIndexFromPath(unpacked(t, archive))
	require.NoError(t, err)
	manifest, err := outer.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1, "one name, for all platforms")
	require.Equal(t, map[string]string{
		"io.containerd.image.name":          "leaderd/leaderd:1.2.3",
		"org.opencontainers.image.ref.name": "1.2.3",
	}, manifest.Manifests[0].Annotations)
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	require.NoError(t, validate.Index(index))

	platforms, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, platforms.Manifests, 2)
	for i, arch := range []string{"amd64", "arm64"} {
		require.Equal(t, "linux/"+arch, platforms.Manifests[i].Platform.String())
		image, err := index.Image(platforms.Manifests[i].Digest)
		require.NoError(t, err)
		checkImage(t, arch, image)
	}
}

func checkImage(t *testing.T, arch string, image v1.Image) {
	t.Helper()
	cfg, err := image.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, arch, cfg.Architecture)
	require.Equal(t, "65532:65532", cfg.Config.User, "a number: runAsNonRoot cannot judge a name")
	require.Equal(t, []string{"/usr/local/bin/leaderd"}, cfg.Config.Entrypoint)
	require.Equal(t, []string{"serve"}, cfg.Config.Cmd)
	require.Equal(t, "1.2.3", cfg.Config.Labels["org.opencontainers.image.version"])
	require.Equal(t, int64(1790000000), cfg.Created.Unix())

	files, headers := contents(t, mutate.Extract(image))
	require.Equal(t, int64(0o755), headers["usr/local/bin/leaderd"].Mode)
	require.Zero(t, headers["usr/local/bin/leaderd"].Uid, "the program cannot change itself")
	require.Equal(t, 65532, headers["var/lib/leaderd"].Uid)
	require.Equal(t, int64(0o750), headers["var/lib/leaderd"].Mode)
	require.Equal(t, int64(0o1777), headers["tmp"].Mode)
	require.Equal(t, "leaderd:x:65532:65532:leaderd:/var/lib/leaderd:/sbin/nologin\n", string(files["etc/passwd"]))
	require.Equal(t, "leaderd:x:65532:\n", string(files["etc/group"]))
	require.Equal(t, "Apache License", string(files["LICENSE"]))
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(files["etc/ssl/certs/ca-certificates.crt"]))
	require.Greater(t, bytes.Count(files["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN CERTIFICATE")), 100)
}

func TestRefusals(t *testing.T) {
	static := program64(t, elf.EM_X86_64)
	dynamic := program64(t, elf.EM_X86_64, elf.PT_INTERP)
	text := filepath.Join(t.TempDir(), "leaderd")
	require.NoError(t, os.WriteFile(text, []byte("#!/bin/sh\n"), 0o600))
	for name, c := range map[string]struct{ arg, says string }{
		"dynamic":      {"amd64=" + dynamic, "wants a dynamic linker"},
		"other":        {"arm64=" + static, "it is for EM_X86_64, not for arm64"},
		"script":       {"amd64=" + text, "no Linux program"},
		"architecture": {"mips=" + static, `architecture "mips" is none of amd64, arm64`},
		"no file":      {"amd64", `"amd64" is not ARCH=BINARY`},
		"lost file":    {"amd64=/nonexistent", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			target := filepath.Join(t.TempDir(), "image.tar")
			err := run([]string{"-o", target, "-version", "1", c.arg}, io.Discard)
			require.ErrorContains(t, err, c.says)
			require.NoFileExists(t, target)
		})
	}
	require.ErrorContains(t, run([]string{"-version", "1"}, io.Discard), "are required")
}

// unpacked is the folder with the archive's files.
func unpacked(t *testing.T, archive []byte) string {
	t.Helper()
	dir := t.TempDir()
	files, headers := contents(t, io.NopCloser(bytes.NewReader(archive)))
	for name := range headers {
		if headers[name].Typeflag == tar.TypeDir {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o750))
		}
	}
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return dir
}

// contents are the files and all entries of a tar stream.
func contents(t *testing.T, stream io.ReadCloser) (files map[string][]byte, headers map[string]*tar.Header) {
	t.Helper()
	defer func() { require.NoError(t, stream.Close()) }()
	files, headers = map[string][]byte{}, map[string]*tar.Header{}
	r := tar.NewReader(stream)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, headers
		}
		require.NoError(t, err)
		name := strings.TrimSuffix(h.Name, "/")
		headers[name] = h
		if h.Typeflag == tar.TypeReg {
			files[name], err = io.ReadAll(r)
			require.NoError(t, err)
		}
	}
}
