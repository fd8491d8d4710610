package output

import (
	"encoding/binary"
	"fmt"
	"os"
)

// layout is where the bytes of an output are in its file: [0, head) as they
// came, then a circle of size bytes for the rest.
type layout struct {
	head   int64
	circle int64
}

func layoutOf(maxRunBytes int64) layout {
	head := maxRunBytes / 2
	return layout{head: head, circle: maxRunBytes - head}
}

// limit is the size of the content.
func (l layout) limit() int64 { return l.head + l.circle }

// place is the position in the file of the output's byte pos, and how many bytes
// from there on lie in one piece.
func (l layout) place(pos int64) (at, contiguous int64) {
	if pos < l.limit() {
		return pos, l.limit() - pos
	}
	in := (pos - l.head) % l.circle
	return l.head + in, l.circle - in
}

// skip is the first byte at or after pos that the file still has, when stored
// bytes were written.
func (l layout) skip(pos, stored int64) int64 {
	if oldest := stored - l.circle; stored > l.limit() && pos >= l.head && pos < oldest {
		return oldest
	}
	return pos
}

// The trailer follows the content of a cut file: a mark, the layout and how many
// bytes were stored.
const (
	trailerMark = "ldcut\x00\x00\x01"
	trailerSize = 32
)

func (l layout) trailer(stored int64) []byte {
	b := make([]byte, 0, trailerSize)
	b = append(b, trailerMark...)
	b = binary.BigEndian.AppendUint64(b, uint64(l.head))
	b = binary.BigEndian.AppendUint64(b, uint64(l.circle))
	return binary.BigEndian.AppendUint64(b, uint64(stored))
}

// readTrailer is the inverse of trailer for a file that may be damaged.
func readTrailer(f *os.File, size int64) (l layout, stored int64, err error) {
	var b [trailerSize]byte
	if size < trailerSize {
		return l, 0, fmt.Errorf("trailer of %s: the file is too short", f.Name())
	}
	if _, err := f.ReadAt(b[:], size-trailerSize); err != nil {
		return l, 0, fmt.Errorf("trailer of %s: %w", f.Name(), err)
	}
	l.head = int64(binary.BigEndian.Uint64(b[8:]))
	l.circle = int64(binary.BigEndian.Uint64(b[16:]))
	stored = int64(binary.BigEndian.Uint64(b[24:]))
	content := size - trailerSize
	if string(b[:8]) != trailerMark || l.circle <= 0 || l.head < 0 || l.head > content ||
		l.circle != content-l.head || stored < content {
		return layout{}, 0, fmt.Errorf("trailer of %s is damaged", f.Name())
	}
	return l, stored, nil
}
