package live

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitReturnsWithTheFirstValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v Value[int]
		if _, ok := v.Load(); ok {
			t.Fatal("a value before one was stored")
		}
		go func() {
			time.Sleep(time.Second)
			v.Store(7)
		}()
		if got, err := v.Wait(t.Context()); got != 7 || err != nil {
			t.Fatalf("got %d, %v", got, err)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v Value[int]
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := v.Wait(ctx); err != context.DeadlineExceeded {
			t.Fatalf("got %v", err)
		}
	})
}

func TestAZeroValueCanBeStored(t *testing.T) {
	var v Value[*int]
	v.Store(nil)
	if got, ok := v.Load(); got != nil || !ok {
		t.Fatalf("got %v, %v", got, ok)
	}
}

func TestFollowersSeeTheLastValueAndNeverAnOlderOne(t *testing.T) {
	var v Value[int]
	const last = 10_000
	var followers sync.WaitGroup
	for range 8 {
		followers.Go(func() {
			for seen := 0; seen < last; {
				got, ok, changed := v.Follow()
				if ok && got < seen {
					t.Errorf("read %d after %d", got, seen)
					return
				}
				seen = max(seen, got)
				if got < last {
					<-changed
				}
			}
		})
	}
	for i := range last {
		v.Store(i + 1)
	}
	followers.Wait()
}

func BenchmarkLoad(b *testing.B) {
	var v Value[*int]
	v.Store(new(int))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, ok := v.Load(); !ok {
				b.Fatal("empty")
			}
		}
	})
}
