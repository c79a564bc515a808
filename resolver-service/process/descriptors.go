package process

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"slices"
	"syscall"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
)

// Bounds are how many connections each listener takes, so that all of them together leave a
// reserve of descriptors. The reserve is for the store, peers, checks and files, and for
// health pages, which must answer while everything else is full.
type Bounds struct {
	// Of is what each listener of an edge takes, or all of one with a joint claim, by the edge's name.
	Of      map[string]int
	Reduced []edge.Edge // those that got less than they want
	limit   int
}

// Reserve is how many of the process's descriptors no listener gets.
func Reserve(limit int) int { return min(max(limit/8, 64), 4096) }

// claim is what one edge wants.
type claim struct {
	edge   edge.Edge
	each   int // connections of each listener, or of all if the claim is joint
	copies int // how often that is
}

// Fit fits the bounds into a limit of descriptors. Every edge has the same share; what one
// doesn't want is for the others.
func Fit(edges []edge.Edge, limit int) Bounds {
	b := Bounds{Of: map[string]int{}, limit: limit}
	left := limit - Reserve(limit)
	var claims []claim
	for _, e := range edges {
		cl := claim{edge: e, each: cmp.Or(e.Claim.Max, e.Claim.Default), copies: len(e.Listen)}
		if e.Claim.Part > 0 {
			cl.each = min(cl.each, limit/e.Claim.Part)
		}
		b.Of[e.Name] = cl.each
		if e.Claim.Beside != nil && cl.copies > 0 {
			left -= e.Claim.Beside(limit)
		}
		if e.Claim.Joint {
			cl.copies = min(cl.copies, 1)
		}
		switch {
		case cl.copies == 0:
		case e.Claim.Part > 0:
			left -= cl.wants()
		default:
			claims = append(claims, cl)
		}
	}
	slices.SortStableFunc(claims, func(x, y claim) int { return cmp.Compare(x.wants(), y.wants()) })
	for i, cl := range claims {
		share := max(left, 0) / (len(claims) - i)
		if cl.wants() > share {
			cl.each = max(share/cmp.Or(cl.edge.Claim.Cost, 1)/cl.copies, LeastConnections)
			b.Of[cl.edge.Name] = cl.each
			b.Reduced = append(b.Reduced, cl.edge)
		}
		left -= cl.wants()
	}
	return b
}

// LeastConnections is what each listener takes however low the limit is.
const LeastConnections = 8

func (cl claim) wants() int { return cl.each * cl.copies * cmp.Or(cl.edge.Claim.Cost, 1) }

// OpenFiles is how many descriptors the process may have. Go has raised it to the hard limit.
func OpenFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(limit.Cur)
}

// tell says which listeners take fewer connections than wanted.
func (b *Bounds) tell(log *slog.Logger) {
	if len(b.Reduced) == 0 {
		return
	}
	level := slog.LevelInfo
	args := []any{"openFiles", b.limit, "reserve", Reserve(b.limit)}
	for _, e := range b.Reduced {
		args = append(args, e.Claim.Key, b.Of[e.Name])
		if e.Claim.Max > 0 {
			level = slog.LevelWarn
		}
	}
	log.Log(context.Background(), level, "the limit of open files is too low for all connections that the listeners may have; "+
		"they take fewer; raise it with ulimit -n or LimitNOFILE", args...)
}
