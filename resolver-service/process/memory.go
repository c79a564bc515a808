package process

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// gcPercent is how much garbage Go may gather, in hundredths of what is alive, before it collects in the
// midst of work. What a service holds is large and stays, so Go's default of 100 would double it.
const gcPercent = 50

// Garbage is collected when the process is quiet, so that a change seldom meets a collection.
const (
	lookEvery    = 250 * time.Millisecond // at rest
	quietFor     = 20 * time.Millisecond  // without quietBytes of new garbage: nothing is going on
	quietBytes   = 256 << 10
	worthPercent = 25      // garbage, in hundredths of what is alive, that is worth it: each collection looks at all of that
	worthLeast   = 4 << 20 // bytes
)

// settling is how long after the first reading of everything parts still begin their work, such as edges
// and checks of instances.
const settling = 3 * time.Second

// SaveMemory runs until ctx ends. It has garbage collected while nothing goes on, and sooner than by
// Go's default where something always does, unless the environment's GOGC says when. Once ready holds
// true it gives back to the operating system what the first reading of everything took, and once more
// when the parts have settled.
func SaveMemory(ctx context.Context, ready *live.Value[bool]) error {
	own := os.Getenv("GOGC") == ""
	if own {
		defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	}
	if _, err := ready.Wait(ctx); err == nil {
		debug.FreeOSMemory()
		if live.Sleep(ctx, settling) {
			debug.FreeOSMemory()
		}
	}
	for last := newHeap(); own && live.Sleep(ctx, lookEvery); {
		if !last.read().worth() {
			continue
		}
		for before := last.allocated; live.Sleep(ctx, quietFor); before = last.allocated {
			if last.read().allocated-before < quietBytes {
				if last.worth() {
					runtime.GC()
				}
				break
			}
		}
	}
	<-ctx.Done()
	return nil
}

// heap is how the heap stands.
type heap struct {
	samples             []metrics.Sample
	live, in, allocated uint64
}

func newHeap() *heap {
	return &heap{samples: []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/allocs:bytes"}}}
}

func (h *heap) read() *heap {
	metrics.Read(h.samples)
	h.live, h.in, h.allocated = h.samples[0].Value.Uint64(), h.samples[1].Value.Uint64(), h.samples[2].Value.Uint64()
	return h
}

// worth tells whether there may be enough garbage for a collection.
func (h *heap) worth() bool {
	return h.in > h.live && h.in-h.live > max(worthLeast, h.live*worthPercent/100)
}
