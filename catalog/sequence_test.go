package catalog

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

// A lookup writes only its own core's sequence, which has its own cache lines. So it costs as
// much with sixteen cores as with two.
func TestALookupWritesNoLineOfAnotherCore(t *testing.T) {
	const cores = 16
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
	if size := unsafe.Sizeof(coreSequence{}); size%128 != 0 {
		t.Fatalf("a turn has %d bytes, so that two share a line", size)
	}
	var x sequence
	x.split(cores)
	own := *x.perCore.Load()
	var all sync.WaitGroup
	var elsewhere atomic.Int32
	for range cores {
		all.Go(func() {
			for range lookups {
				core := procPin()
				before := own[core].at
				if x.next(); own[core].at != before+golden {
					elsewhere.Add(1)
				}
				procUnpin()
			}
		})
	}
	all.Wait()
	if n := elsewhere.Load(); n != 0 || x.shared.Load() != 0 {
		t.Errorf("%d lookups stepped another core's turn; the shared turn is at %d", n, x.shared.Load())
	}
}

// A rare collision costs no memory; cores that collide again and again get their own sequences.
func TestCoresPartOnceTheyCompete(t *testing.T) {
	var x sequence
	x.shared.Store(rand.Uint64())
	for range 100 {
		x.contend()
		for range contentionWindow {
			x.next()
		}
	}
	if x.perCore.Load() != nil {
		t.Fatalf("cores that meet once in %d lookups parted", contentionWindow+1)
	}
	x.contend()
	for range contentionWindow - 2 {
		x.next()
	}
	if x.contend(); x.perCore.Load() == nil {
		t.Errorf("cores that meet twice within %d lookups did not part", contentionWindow)
	}
}

// Callers on several cores that alternate between apps get every route's share as well as a
// single caller does, except for a few lookups per core.
func TestWeightsHoldForCallersOnManyCores(t *testing.T) {
	const cores = 16
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
	r := rand.New(rand.NewPCG(1, 4))
	for i := range 10 {
		var plans [3]*Plan
		var share, count [3]map[string]float64
		for j := range plans {
			var routes []Route
			routes, share[j] = randomRoutes(r)
			plans[j], count[j] = NewPlan(orders, routes), map[string]float64{}
			plans[j].choice.sequence.split(cores)
		}
		var all sync.WaitGroup
		var adding sync.Mutex
		var taken [3]atomic.Int64
		for range cores {
			seed := r.Uint64()
			all.Go(func() {
				mine, r := [3]map[string]float64{{}, {}, {}}, rand.New(rand.NewPCG(seed, 1))
				for n := 0; n < 3*lookups; n++ {
					j := r.IntN(3)
					if taken[j].Add(1) > lookups {
						continue
					}
					mine[j][plans[j].Address()]++
				}
				adding.Lock()
				defer adding.Unlock()
				for j := range mine {
					for address, n := range mine[j] {
						count[j][address] += n
					}
				}
			})
		}
		all.Wait()
		for j := range plans {
			hold(t, fmt.Sprint("weights ", i, ", app ", j), count[j], share[j], 40)
		}
	}
}

// A plan that replaces another continues its cores' sequences.
func TestAPlanThatFollowsKeepsItsCoresApart(t *testing.T) {
	routes := []Route{to("west", 0, 1, Ready, "w:1", "w:2")}
	p, next := NewPlan(orders, routes), NewPlan(orders, routes)
	p.choice.sequence.split(2)
	next.Follow(p)
	if next.choice.sequence.perCore.Load() != p.choice.sequence.perCore.Load() {
		t.Error("the next plan makes its cores compete again")
	}
}
