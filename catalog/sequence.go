package catalog

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	_ "unsafe" // for go:linkname
)

// sequence is the position of a plan's lookups in the golden sequence. A single caller, or
// several that seldom collide, share one sequence. Once two cores compete for it, each core gets
// a sequence of its own, on cache lines that no other core writes. That takes memory once, for
// that plan only; nothing is allocated afterwards.
type sequence struct {
	shared      atomic.Uint64
	contendedAt atomic.Uint64                  // value of shared at the last collision
	perCore     atomic.Pointer[[]coreSequence] // by core; a power of two of them
}

// coreSequence fills two cache lines, since processors fetch lines in pairs.
type coreSequence struct {
	at uint64
	_  [120]byte
}

// next is the point of the next lookup. No two goroutines are pinned to one core. So a core's own
// sequence needs no atomic operation, which would cost more than all the rest.
//
//go:norace
func (t *sequence) next() uint64 {
	if own := t.perCore.Load(); own != nil {
		mine := &(*own)[procPin()&(len(*own)-1)]
		x := mine.at + golden
		mine.at = x
		procUnpin()
		return x
	}
	x := t.shared.Load()
	if t.shared.CompareAndSwap(x, x+golden) {
		return x + golden
	}
	return t.contend()
}

// contend is next for a lookup that another core was ahead of. If that happens again within a few
// lookups, each core gets its own sequence. So a rare collision costs no memory.
func (t *sequence) contend() uint64 {
	x := t.shared.Add(golden)
	if lost := t.contendedAt.Swap(x); (x-lost)*lookupsIn < contentionWindow {
		t.split(runtime.GOMAXPROCS(0))
	}
	return x
}

const (
	contentionWindow = 64
	// lookupsIn is golden's inverse modulo 2^64: it converts a distance into lookups.
	lookupsIn = 0xF1DE83E19937733D
)

// split gives each core a sequence of its own, with a random start.
func (t *sequence) split(cores int) {
	own := make([]coreSequence, 1<<bits.Len(uint(cores-1)))
	for i := range own {
		own[i].at = rand.Uint64()
	}
	t.perCore.CompareAndSwap(nil, &own)
}

// continueFrom continues another sequence. It must not be in use yet.
func (t *sequence) continueFrom(other *sequence) {
	t.shared.Store(other.shared.Load())
	t.perCore.Store(other.perCore.Load())
}

// procPin returns the scheduler's processor of the goroutine, from 0 to GOMAXPROCS-1, and pins
// the goroutine to it until procUnpin. The runtime guarantees both to packages that link them by
// name; sync.Pool uses them.
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()
