package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run writes the archive that args ask for, and says on out what it wrote.
func run(args []string, out io.Writer) error {
	var s spec
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	target := flags.String("o", "", "archive to write")
	created := flags.Int64("created", 0, "seconds since 1970 to date everything with")
	licence := flags.String("licence", "", "file to put at /LICENSE")
	flags.StringVar(&s.name, "name", "leaderd/leaderd", "repository part of the image's name")
	flags.StringVar(&s.version, "version", "", "version, which is the tag too")
	flags.StringVar(&s.revision, "revision", "", "revision of the sources, for the labels")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *target == "" || s.version == "" || flags.NArg() == 0 {
		return errors.New("-o, -version and at least one ARCH=BINARY are required")
	}
	s.created = time.Unix(*created, 0).UTC()
	if *licence != "" {
		content, err := os.ReadFile(*licence)
		if err != nil {
			return fmt.Errorf("read the licence: %w", err)
		}
		s.licence = content
	}
	for _, arg := range flags.Args() {
		p, err := readProgram(arg)
		if err != nil {
			return err
		}
		s.programs = append(s.programs, p)
	}
	index, err := s.index()
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	if err := s.archive(*target, index); err != nil {
		return fmt.Errorf("write %s: %w", *target, err)
	}
	info, err := os.Stat(*target)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s  %s  %s  %d bytes\n", *target, s.reference(), digest, info.Size())
	return err
}

// program is the binary for one platform.
type program struct {
	arch    string
	content []byte
}

func readProgram(arg string) (program, error) {
	arch, path, ok := strings.Cut(arg, "=")
	if !ok || path == "" {
		return program{}, fmt.Errorf("%q is not ARCH=BINARY", arg)
	}
	if _, known := machines[arch]; !known {
		return program{}, fmt.Errorf("architecture %q is none of %s", arch, strings.Join(architectures(), ", "))
	}
	content, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return program{}, fmt.Errorf("read the program: %w", err)
	}
	if err := checkStatic(arch, content); err != nil {
		return program{}, fmt.Errorf("%s: %w", path, err)
	}
	return program{arch: arch, content: content}, nil
}

func architectures() []string {
	var out []string
	for arch := range machines {
		out = append(out, arch)
	}
	slices.Sort(out)
	return out
}
