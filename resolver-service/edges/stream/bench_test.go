package stream_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
)

// BenchmarkFanOut is the time from a change of an instance until the last connected sidecar has
// the new view, with the clients in the same process. Either each sidecar is another app with a
// selection (own), or all follow the default (open).
func BenchmarkFanOut(b *testing.B) {
	for _, kind := range []string{"own", "open"} {
		for _, streams := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/streams=%d", kind, streams), func(b *testing.B) { fanOut(b, kind, streams) })
		}
	}
}

func fanOut(b *testing.B, kind string, streams int) {
	var objects []catalog.Object
	callers := make([]catalog.App, streams)
	for i := range callers {
		callers[i] = catalog.App{Namespace: "shop", ID: fmt.Sprintf("caller-%d", i)}
		if kind == "own" {
			objects = append(objects, selection(callers[i], orders, ledger))
		}
	}
	s := start(b, stream.Config{}, "127.0.0.1:0", objects...)
	s.instances(orders, "10.0.0.1:50002")
	empty := memory()
	var round, joined sync.WaitGroup
	joined.Add(streams)
	for i := range callers {
		c := s.dial().send(helloOf(callers[i], fmt.Sprintf("10.1.%d.%d:50002", i/250, i%250)))
		go func() {
			greeted := false
			for {
				m, err := c.stream.Recv()
				if err != nil {
					return
				}
				if !greeted {
					greeted = true
					joined.Done()
				} else if marked(m) {
					round.Done()
				}
			}
		}()
	}
	joined.Wait()
	time.Sleep(500 * time.Millisecond) // until the effects of joining are over
	held := memory() - empty
	var took []time.Duration
	before := cpu(b)
	for n := 0; b.Loop(); n++ {
		round.Add(streams)
		begin := time.Now()
		s.instances(orders, "10.0.0.1:50002", fmt.Sprintf("10.9.%d.%d:50002", n/250%250, n%250))
		round.Wait()
		took = append(took, time.Since(begin))
	}
	b.ReportMetric(float64(held)/1024/float64(streams), "KiB/stream")
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(len(took)*streams), "cpu-µs/stream")
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
}

// marked tells whether a message has the changed instance.
func marked(m *pb.WatchResponse) bool {
	_, absent := ready(m, orders)
	return !absent
}

// cpu is the CPU time of this process.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory is the live heap of this process.
func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
