package catalog

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	_ "unsafe" // for go:linkname
)

// turns is where the lookups of a plan have got to in the golden sequence. One caller, or
// several that seldom meet, walk one sequence. Once two cores compete for it, each core
// walks a sequence of its own, on cache lines that no other core writes. That takes memory
// for that plan alone, once: nothing is allocated afterwards.
type sequence struct {
	shared      atomic.Uint64
	contendedAt atomic.Uint64                  // where shared was when two last competed for it
	perCore     atomic.Pointer[[]coreSequence] // by core; a power of two of them
}

// turn fills two cache lines, since processors fetch lines in pairs.
type coreSequence struct {
	at uint64
	_  [120]byte
}

// next is the point of the next lookup. No two goroutines are pinned to one core, so that
// a core's own turn takes no atomic operation, which would cost more than all the rest.
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

// compete is next for a lookup that another core was ahead of. If that happens again within
// a few lookups, the cores part: a chance meeting costs no memory.
func (t *sequence) contend() uint64 {
	x := t.shared.Add(golden)
	if lost := t.contendedAt.Swap(x); (x-lost)*lookupsIn < contentionWindow {
		t.split(runtime.GOMAXPROCS(0))
	}
	return x
}

const (
	contentionWindow = 64
	// lookupsIn is golden's inverse modulo 2^64: it turns a distance into lookups.
	lookupsIn = 0xF1DE83E19937733D
)

// part gives each of so many cores a sequence of its own, each from anywhere.
func (t *sequence) split(cores int) {
	own := make([]coreSequence, 1<<bits.Len(uint(cores-1)))
	for i := range own {
		own[i].at = rand.Uint64()
	}
	t.perCore.CompareAndSwap(nil, &own)
}

// follow goes on where other has got to. t must not be in use yet.
func (t *sequence) continueFrom(other *sequence) {
	t.shared.Store(other.shared.Load())
	t.perCore.Store(other.perCore.Load())
}

// procPin says which of the scheduler's processors the goroutine runs on, from 0 to
// GOMAXPROCS-1, and keeps it there until procUnpin. The runtime promises both to packages
// that link them by name; sync.Pool is built on them.
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()
