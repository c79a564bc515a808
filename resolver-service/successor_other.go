//go:build !linux

package resolverservice

import (
	"context"
	"net"
	"time"
)

// Sockets are handed over on Linux alone: elsewhere there is never a predecessor.

type sockets struct{}

func (sockets) close()                                {}
func (sockets) listener(string) (net.Listener, error) { return nil, nil }

type predecessor struct{ sockets }

func (*predecessor) release() error { return nil }
func (*predecessor) part()          {}

func (*Config) meetPredecessor() *predecessor { return nil }

func (*Service) afterPredecessor(context.Context) {}
func (*Service) awaits()                          {}
func (*Service) handOver(time.Time, func())       {}
