package unclaimed

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/leaderd/leaderd/state"
)

const (
	suffix = ".json"
	// unreadable is what a file is renamed to that cannot be read.
	unreadable = ".unreadable"
)

// fact is a run as its file has it.
type fact struct {
	Namespace string      `json:"namespace"`
	Job       string      `json:"job"`
	Run       state.RunID `json:"run"`
	Due       time.Time   `json:"due"`
	Begun     time.Time   `json:"begun"`
	// End is absent while the work goes on.
	End *End `json:"end,omitempty"`
}

func (f *fact) key() Key { return Key{state.JobID{Namespace: f.Namespace, Name: f.Job}, f.Run} }

// disk is a directory with a file for each run that is not recorded.
type disk struct{ dir string }

// name is the file of a run.
func (d disk) name(k Key) string {
	sum := sha256.Sum256([]byte(k.Job.Namespace + "\x00" + k.Job.Name + "\x00" + string(k.Run)))
	return filepath.Join(d.dir, hex.EncodeToString(sum[:16])+suffix)
}

// put makes a fact durable: a later process finds it, or the one before, or none.
func (d disk) put(f *fact) error {
	content, err := json.Marshal(f)
	if err != nil {
		return err
	}
	name := d.name(f.key())
	file, err := os.OpenFile(name+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(name+".new"))
	}
	return d.sync()
}

// sync makes the names in the directory durable.
func (d disk) sync() error {
	dir, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// remove forgets a run.
func (d disk) remove(k Key) error { return os.Remove(d.name(k)) }

// all reads what an earlier process left. A file that cannot be read is put aside and
// told of, and keeps nobody from starting.
func (d disk) all(tell func(name string, err error)) ([]*fact, error) {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, err
	}
	files, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, err
	}
	var facts []*fact
	for _, file := range files {
		name := filepath.Join(d.dir, file.Name())
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		f, err := read(name)
		if err == nil && d.name(f.key()) != name {
			err = errors.New("it is another run's")
		}
		if err != nil {
			tell(name, errors.Join(err, os.Rename(name, name+unreadable)))
			continue
		}
		facts = append(facts, f)
	}
	return facts, nil
}

func read(name string) (*fact, error) {
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var f fact
	if err := json.Unmarshal(content, &f); err != nil {
		return nil, err
	}
	if f.End != nil && state.CheckTransition(state.StateRunning, f.End.State) != nil {
		return nil, fmt.Errorf("no run ends as %s", f.End.State)
	}
	return &f, nil
}
