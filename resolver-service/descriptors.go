package resolverservice

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"slices"
	"syscall"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway"
)

// Defaults of the listeners' bounds.
const (
	defaultConnections          = 20_000 // of listen.resolver
	defaultConnectionsPerClient = 5_000
	defaultGatewayConnections   = 50_000
	maxHandshakes               = 2048 // of listen.resolver, at once
)

// descriptorsPerGatewayConnection: a client's and a backend's socket. Pipes between them are
// few, and where none is to be had bytes are copied, so the reserve has room for them.
const descriptorsPerGatewayConnection = 2

// bounds are how many connections each listener takes, so that all of them together leave a
// reserve of descriptors. The reserve is for the store, peers, checks and files, and for
// health pages, which must answer while everything else is full.
type bounds struct {
	of                            map[string]int // each listener of an edge, or all of one with a joint claim, by the edge's name
	resolverPerClient, handshakes int
	peers                         int // connections to the resolver service through the gateway
}

// reserve is how many of the process's descriptors no listener gets.
func reserve(limit int) int { return min(max(limit/8, 64), 4096) }

// claim is what one edge wants.
type claim struct {
	edge.Claim
	name   string
	each   int // connections of each listener, or of all if the claim is joint
	copies int // how often that is
}

// fit fits the bounds into a limit of descriptors. Every edge has the same share; what one
// doesn't want is for the others. It returns the claims of those that got less.
func (c *Config) fit(limit int) (b bounds, reduced []claim) {
	b.of = map[string]int{}
	left := limit - reserve(limit)
	b.peers = min(gateway.DefaultMaxPeers, max(limit/16, 1))
	var claims []claim
	for _, e := range c.edges() {
		cl := claim{Claim: e.Claim, name: e.Name, each: cmp.Or(e.Claim.Max, e.Claim.Default), copies: len(e.Listen)}
		if cl.Part > 0 {
			cl.each = min(cl.each, limit/cl.Part)
		}
		b.of[e.Name] = cl.each
		if e.Name == "gateway" && cl.copies > 0 {
			left -= gateway.Descriptors(b.peers, cl.copies)
		}
		if cl.Joint {
			cl.copies = min(cl.copies, 1)
		}
		switch {
		case cl.copies == 0:
		case cl.Part > 0:
			left -= cl.wants()
		default:
			claims = append(claims, cl)
		}
	}
	slices.SortStableFunc(claims, func(x, y claim) int { return cmp.Compare(x.wants(), y.wants()) })
	for i, cl := range claims {
		share := max(left, 0) / (len(claims) - i)
		if cl.wants() > share {
			cl.each = max(share/cmp.Or(cl.Cost, 1)/cl.copies, leastConnections)
			b.of[cl.name] = cl.each
			reduced = append(reduced, cl)
		}
		left -= cl.wants()
	}
	// However few there are, one client never has all, and neither have half-open ones.
	half := max(b.of["resolver"]/2, 1)
	b.resolverPerClient = min(cmp.Or(c.Resolver.MaxConnectionsPerClient, defaultConnectionsPerClient), half)
	if c.Resolver.MaxConnectionsPerClient > 0 && !slices.ContainsFunc(reduced, func(cl claim) bool { return cl.name == "resolver" }) {
		b.resolverPerClient = c.Resolver.MaxConnectionsPerClient
	}
	b.handshakes = min(maxHandshakes, half)
	return b, reduced
}

// leastConnections is what each listener takes however low the limit is.
const leastConnections = 8

func (cl claim) wants() int { return cl.each * cl.copies * cmp.Or(cl.Cost, 1) }

// openFiles is how many descriptors the process may have. Go has raised it to the hard limit.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(limit.Cur)
}

// fitBounds decides how many connections each listener takes, and says so where it is less
// than wanted.
func (s *listeners) fitBounds() {
	limit := openFiles()
	b, reduced := s.cfg.fit(limit)
	s.bounds = b
	if len(reduced) == 0 {
		return
	}
	level := slog.LevelInfo
	args := []any{"openFiles", limit, "reserve", reserve(limit)}
	for _, cl := range reduced {
		args = append(args, cl.Key, cl.each)
		if cl.Max > 0 {
			level = slog.LevelWarn
		}
	}
	s.log.Log(context.Background(), level, "the limit of open files is too low for all connections that the listeners may have; "+
		"they take fewer; raise it with ulimit -n or LimitNOFILE", args...)
}
