package memkv

import "github.com/leaderd/leaderd/state/kv"

// fromKey as the end of a range means all keys from its start on.
const fromKey = "\x00"

// version is what a key held from kv.ModRevision on; when gone, that it held
// nothing.
type version struct {
	kv   kv.KeyValue
	gone bool
}

func (v *version) answer(keysOnly bool) kv.KeyValue {
	out := v.kv
	if keysOnly {
		// etcd answers from its index, which knows no leases.
		out.Value, out.Lease = nil, 0
	}
	return out
}

// item is the history of one key, oldest first.
type item struct {
	key      string
	versions []version
}

// at is what the key held at rev, or nil.
func (it *item) at(rev int64) *version {
	if it == nil {
		return nil
	}
	for i := len(it.versions) - 1; i >= 0; i-- {
		if v := &it.versions[i]; v.kv.ModRevision <= rev {
			if v.gone {
				return nil
			}
			return v
		}
	}
	return nil
}

// compact drops what nobody can read at rev or later. A deletion at rev itself
// stays, since it can still be watched.
func (it *item) compact(rev int64) {
	keep := 0
	for i := range it.versions {
		if it.versions[i].kv.ModRevision > rev {
			break
		}
		keep = i
	}
	if v := &it.versions[keep]; v.gone && v.kv.ModRevision < rev {
		keep++
	}
	if keep > 0 {
		it.versions = append([]version(nil), it.versions[keep:]...)
	}
}

// within says whether key lies in the range [start, end).
func within(key, start, end string) bool {
	switch end {
	case "":
		return key == start
	case fromKey:
		return key >= start
	default:
		return key >= start && key < end
	}
}

// visit calls f with what each key of the range held at rev, in order of keys,
// until f answers false.
func (s *Store) visit(key, end string, rev int64, f func(*version) bool) {
	if end == "" {
		if v := s.keys[key].at(rev); v != nil {
			f(v)
		}
		return
	}
	s.tree.AscendGreaterOrEqual(&item{key: key}, func(it *item) bool {
		if end != fromKey && it.key >= end {
			return false
		}
		if v := it.at(rev); v != nil {
			return f(v)
		}
		return true
	})
}
