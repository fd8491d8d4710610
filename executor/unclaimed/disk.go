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

// Disk keeps what is put on it beyond the end of the process. Its methods block for as
// long as the file system does, and are called from several goroutines.
type Disk interface {
	// Put keeps content by a name, in the place of what there was: a later process finds
	// this, or that, or nothing where nothing was.
	Put(name string, content []byte) error
	// Remove forgets a name.
	Remove(name string) error
	// All is what is kept, by name.
	All() (map[string][]byte, error)
	// PutAside keeps a name out of All, for somebody to look at.
	PutAside(name string) error
}

// fact is a run as the disk has it.
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

// name is a run's on the disk.
func (k Key) name() string {
	sum := sha256.Sum256([]byte(k.Job.Namespace + "\x00" + k.Job.Name + "\x00" + string(k.Run)))
	return hex.EncodeToString(sum[:16])
}

func (u *Runs) put(f *fact) error {
	content, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return u.disk.Put(f.key().name(), content)
}

// facts reads what an earlier process left. What cannot be read is put aside and told of,
// and keeps nobody from starting.
func (u *Runs) facts() ([]*fact, error) {
	all, err := u.disk.All()
	if err != nil {
		return nil, err
	}
	var facts []*fact
	for name, content := range all {
		f, err := read(name, content)
		if err != nil {
			u.results.WithLabelValues("lost").Inc()
			u.cfg.Logger.Error("what is kept of a run that began without a claim cannot be read and is put aside",
				"name", name, "err", errors.Join(err, u.disk.PutAside(name)))
			continue
		}
		facts = append(facts, f)
	}
	return facts, nil
}

func read(name string, content []byte) (*fact, error) {
	var f fact
	if err := json.Unmarshal(content, &f); err != nil {
		return nil, err
	}
	if f.key().name() != name {
		return nil, errors.New("it is another run's")
	}
	if f.End != nil && state.CheckTransition(state.StateRunning, f.End.State) != nil {
		return nil, fmt.Errorf("no run ends as %s", f.End.State)
	}
	return &f, nil
}

const (
	suffix = ".json"
	// unreadable is what is added to the names of files that are put aside.
	unreadable = ".unreadable"
)

// Dir is a directory as a Disk, with a file for each name. It is made where it is missing.
func Dir(path string) Disk { return dir(path) }

type dir string

func (d dir) file(name string) string { return filepath.Join(string(d), name+suffix) }

// Put implements Disk.
func (d dir) Put(name string, content []byte) error {
	name = d.file(name)
	_, missing := os.Stat(name)
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
	if err := d.sync(); err != nil {
		if missing != nil {
			err = errors.Join(err, os.Remove(name)) // what it would tell has not been
		}
		return err
	}
	return nil
}

// sync makes the names in the directory durable.
func (d dir) sync() error {
	all, err := os.Open(string(d))
	if err != nil {
		return err
	}
	return errors.Join(all.Sync(), all.Close())
}

// Remove implements Disk.
func (d dir) Remove(name string) error { return os.Remove(d.file(name)) }

// All implements Disk.
func (d dir) All() (map[string][]byte, error) {
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return nil, err
	}
	files, err := os.ReadDir(string(d))
	if err != nil {
		return nil, err
	}
	all := make(map[string][]byte)
	for _, file := range files {
		name, ok := strings.CutSuffix(file.Name(), suffix)
		if !ok {
			continue
		}
		if all[name], err = os.ReadFile(d.file(name)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// PutAside implements Disk.
func (d dir) PutAside(name string) error { return os.Rename(d.file(name), d.file(name)+unreadable) }
