package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	check := flag.Bool("check", false, "write nothing, and fail where something is not current")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "chartgen: takes the folder of one chart")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *check); err != nil {
		fmt.Fprintln(os.Stderr, "chartgen:", err)
		os.Exit(1)
	}
}

// run brings the files of the chart in dir up to date, or checks that they are.
func run(dir string, check bool) error {
	values, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
	if err != nil {
		return err
	}
	root, err := parse(values)
	if err != nil {
		return fmt.Errorf("values.yaml: %w", err)
	}
	schema, err := root.document()
	if err != nil {
		return fmt.Errorf("values.yaml: %w", err)
	}
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		return err
	}
	if readme, err = withTables(readme, root); err != nil {
		return fmt.Errorf("README.md: %w", err)
	}
	var errs []error
	for name, content := range map[string][]byte{"values.schema.json": schema, "README.md": readme} {
		errs = append(errs, settle(filepath.Join(dir, name), content, check))
	}
	return errors.Join(errs...)
}

func settle(path string, want []byte, check bool) error {
	have, err := os.ReadFile(filepath.Clean(path))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if bytes.Equal(have, want) {
		return nil
	}
	if check {
		return fmt.Errorf("%s is not current: make generate-chart", path)
	}
	return os.WriteFile(path, want, 0o644) //nolint:gosec // as all files of a repository
}
