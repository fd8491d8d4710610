package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
)

// hash gives H its values: numbers that differ from job to job and from field to
// field, and are for ever the same for one job. To change this function is to
// move every job that uses H.
type hash struct{ key string }

// of is the first eight bytes of SHA-256 of the key, a line feed and the name of
// the field, as a number with the most significant byte first.
func (h hash) of(f *field) uint64 {
	sum := sha256.Sum256([]byte(h.key + "\n" + f.name))
	return binary.BigEndian.Uint64(sum[:8])
}

// hashDays are the days of month that H chooses from: those of every month.
const hashDays = 28

// isHashed tells whether an element begins as H does; no name begins so.
func isHashed(text string) bool { return text[0] == 'H' || text[0] == 'h' }

// hashed reads H, H(a-b), H/n and H(a-b)/n.
func (f *field) hashed(text string, hash hash) (element, error) {
	base, stepText, stepped := strings.Cut(text, "/")
	step, err := f.step(text, stepText, stepped)
	if err != nil {
		return element{}, err
	}
	from, to, end := f.min, f.max, f.max
	if f.isDom() {
		to = hashDays
	}
	inner, parens := strings.CutPrefix(base[1:], "(")
	inner, closed := strings.CutSuffix(inner, ")")
	loText, hiText, ranged := strings.Cut(inner, "-")
	switch {
	case parens && closed && ranged:
		if from, end, err = f.span(text, loText, hiText); err != nil {
			return element{}, err
		}
		if from > end {
			return element{}, fault(f.name, text, "the range runs backward", "")
		}
		if f.isDom() && end > hashDays {
			hint := fmt.Sprintf("write H(%d-%d)", from, hashDays)
			if from > hashDays {
				hint = "L is the last day of the month"
			}
			return element{}, fault(f.name, text, "not every month has such a day: H chooses from 1-28", hint)
		}
		to = end
	case base[1:] != "":
		return element{}, fault(f.name, text, "H is written H, H(a-b), H/n or H(a-b)/n", "")
	}
	if size := f.size(); step >= size {
		return element{}, fault(f.name, text, fmt.Sprintf("the step must be less than %d", size), f.largeStep("H", step))
	}
	choices := to - from + 1
	if stepped {
		choices = min(choices, step)
	}
	first := from + int(hash.of(f)%uint64(choices)) // less than 60
	if !stepped {
		return element{lo: first, hi: first, step: 1, hashed: true, from: from, to: to}, nil
	}
	return element{lo: first, hi: end, step: step, hashed: true, spread: true, from: from, to: from + choices - 1}, nil
}

// canFire tells whether an element of a month field, whatever H chooses, has one
// of the months given as bits.
func (e element) canFire(months uint16) bool {
	first, last := e.lo, e.lo
	if e.hashed {
		first, last = e.from, e.to
	}
	for lo := first; lo <= last; lo++ {
		hi := e.hi
		if e.hashed && !e.spread {
			hi = lo
		}
		found := false
		for v := lo; v <= hi; v += e.step {
			found = found || months>>v&1 != 0
		}
		if !found {
			return false
		}
	}
	return true
}
