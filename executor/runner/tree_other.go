//go:build unix && !linux

package runner

import (
	"syscall"
	"time"
)

// tree is a command and its process group. Descendants that left it are not found.
type tree struct{ *child }

func newTree(c *child, _ string) *tree { return &tree{child: c} }

func (t *tree) recent() time.Time            { return time.Time{} }
func (t *tree) groupAlive() bool             { return t.groupExists() }
func (t *tree) find(time.Time)               {}
func (t *tree) signalEscaped(syscall.Signal) {}
func (t *tree) escapedAlive() bool           { return false }
