//go:build !linux

package resolverservice

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

func (*Config) findPredecessor() *predecessor { return nil }

func (*listeners) afterPredecessor(context.Context, *live.Value[bool]) {}

type successor struct{ sockets }

func newSuccessor(*listeners) *successor { return &successor{} }

func (*successor) handOver(time.Time, bool, func() bool, func()) {}
