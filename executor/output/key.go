package output

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/leaderd/leaderd/state"
)

// Key names the output of one attempt.
type Key struct {
	Job     state.JobID
	Run     state.RunID
	Shard   int // from 0
	Attempt int // from 1
}

// String is "namespace/job/run/shard/attempt".
func (k Key) String() string {
	return fmt.Sprintf("%s/%s/%d/%d", k.Job, k.Run, k.Shard, k.Attempt)
}

// maxElement leaves room in a file name (255 bytes) for numbers and suffix.
const maxElement = 200

// path is the file's place inside the ring, without its suffix. Two keys never
// share one.
func (k Key) path() string {
	return filepath.Join(element(k.Job.Namespace), element(k.Job.Name),
		element(string(k.Run))+"."+strconv.Itoa(k.Shard)+"."+strconv.Itoa(k.Attempt))
}

// element makes a name safe as one element of a path: letters, digits, '-', '_'
// and inner dots stay, all else is written as %XX. What grows too long is cut
// and told apart by a hash; '~' appears in no other escaped name.
func element(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9',
			c == '-', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() == 0 {
		return "%"
	}
	if b.Len() <= maxElement {
		return b.String()
	}
	sum := sha256.Sum256([]byte(name))
	return b.String()[:maxElement-33] + "~" + hex.EncodeToString(sum[:16])
}
