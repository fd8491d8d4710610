package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size. It is written as a number of bytes or with a unit: 512KiB,
// 16MiB, 2GiB.
type Bytes int64

// Units.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
)

var units = []struct {
	name string
	size Bytes
}{{"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}}

// ParseBytes is the inverse of Bytes.String.
func ParseBytes(s string) (Bytes, error) {
	number, unit := strings.TrimSpace(s), Bytes(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(unit) {
		return 0, fmt.Errorf("%q is not a size, such as 65536, 512KiB, 16MiB or 2GiB", s)
	}
	return Bytes(n) * unit, nil
}

// String is the size in the largest unit that divides it.
func (b Bytes) String() string {
	for _, u := range units {
		if b >= u.size && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// Secret is a string that prints as asterisks.
type Secret string

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "***"
}

// GoString hides it from %#v too.
func (s Secret) GoString() string { return s.String() }
