package main

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// finished is the file of the seeds that held with one program and one set of
// options. Another program, or other options, have another file.
type finished struct {
	file  *os.File
	seeds map[uint64]bool
}

// openFinished opens the file in dir of the program with a sum, for attempts like a.
// Whoever opens it closes it.
func openFinished(dir, sum string, a attempt) (*finished, error) {
	a.seed, a.seeds = 0, 0
	key := sha256.Sum256([]byte(sum + a.String()))
	file, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("held-%x.txt", key[:6])), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	f := &finished{file: file, seeds: map[uint64]bool{}}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var h heldSeed
		// The last line is cut off where the program was killed.
		if n, err := fmt.Sscanf(lines.Text(), "%d %16s", &h.seed, &h.digest); err == nil && n == 2 && len(h.digest) == 16 {
			f.seeds[h.seed] = true
		}
	}
	return f, nil
}

func (f *finished) has(seed uint64) bool { return f.seeds[seed] }

func (f *finished) add(h heldSeed) error {
	if _, err := fmt.Fprintf(f.file, "%d %s\n", h.seed, h.digest); err != nil {
		return errors.Join(fmt.Errorf("seed %d held, and will be run again", h.seed), err)
	}
	return nil
}

func (f *finished) close() { _ = f.file.Close() }
