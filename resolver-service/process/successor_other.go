//go:build !linux

package process

import (
	"context"
	"net"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// Sockets are handed over on Linux alone: elsewhere there is never a predecessor.

type sockets struct{}

func (sockets) close()                                {}
func (sockets) listener(string) (net.Listener, error) { return nil, nil }

type predecessor struct{ sockets }

func (*predecessor) release() error { return nil }
func (*predecessor) close()         {}

func (DataDir) findPredecessor() *predecessor { return nil }

// AwaitPredecessor returns at once.
func (*Listeners) AwaitPredecessor(context.Context, *live.Value[bool]) {}

// Successor is never there.
type Successor struct{}

// Successor is for none.
func (*Listeners) Successor() *Successor { return &Successor{} }

// Close does nothing.
func (*Successor) Close() {}

// HandOver returns at once.
func (*Successor) HandOver(time.Time, bool, func() bool, func()) {}
