package store

import "github.com/leaderd/leaderd/state/kv"

func absent(key string) kv.Compare {
	return kv.Compare{Key: key, Target: kv.TargetCreateRevision}
}

// absentBelow holds where no key begins with prefix, which ends in '/'.
func absentBelow(prefix string) kv.Compare {
	return kv.Compare{Key: prefix, End: end(prefix), Target: kv.TargetCreateRevision}
}

func present(key string) kv.Compare {
	return kv.Compare{Key: key, Target: kv.TargetCreateRevision, Relation: kv.Greater}
}

// unchanged holds where key was last written at revision mod, or is absent if
// that is 0.
func unchanged(key string, mod int64) kv.Compare {
	return kv.Compare{Key: key, Target: kv.TargetModRevision, Int: mod}
}

func keyOnly(key string) kv.Op {
	op := kv.Get(key)
	op.Keys = true
	return op
}

// countRange reads whether there is any key that begins with prefix.
func countRange(prefix string) kv.Op {
	op := kv.GetRange(prefix, end(prefix), 1)
	op.Keys = true
	return op
}
