package main

import (
	"bytes"
	"debug/elf"
	"fmt"
)

// machines are the platforms that there may be an image for.
var machines = map[string]elf.Machine{
	"amd64": elf.EM_X86_64,
	"arm64": elf.EM_AARCH64,
}

// checkStatic refuses what would not start in an empty image on that platform.
func checkStatic(arch string, content []byte) error {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("no Linux program: %w", err)
	}
	if f.Machine != machines[arch] {
		return fmt.Errorf("it is for %s, not for %s", f.Machine, arch)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("it wants a dynamic linker, which the image does not have: build it with CGO_ENABLED=0")
		}
	}
	return nil
}
