package process

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

func TestGarbageIsCollectedSoonerWhileTheServiceRuns(t *testing.T) {
	tests := []struct {
		name, gogc string
		during     int
	}{
		{"by default", "", gcPercent},
		{"unless the environment says when", "100", 100},
	}
	was := debug.SetGCPercent(100)
	defer debug.SetGCPercent(was)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("GOGC", test.gogc)
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				var ready live.Value[bool]
				ended := make(chan error)
				go func() { ended <- SaveMemory(ctx, &ready) }()
				ready.Store(true)
				synctest.Wait()
				if got := percent(); got != test.during {
					t.Errorf("%d %% while it runs, want %d", got, test.during)
				}
				end()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
			if got := percent(); got != 100 {
				t.Errorf("%d %% afterwards, want 100", got)
			}
		})
	}
}

// TestGarbageIsCollectedInQuiet makes less garbage than a collection in the midst of work waits for.
func TestGarbageIsCollectedInQuiet(t *testing.T) {
	t.Setenv("GOGC", "")
	held := make([]byte, 64<<20)
	var ready live.Value[bool]
	ready.Store(true)
	cycles := func() (n uint64) {
		sample := []metrics.Sample{{Name: "/gc/cycles/forced:gc-cycles"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	await := func(before uint64, what string) {
		for limit := time.Now().Add(time.Minute); cycles() <= before; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatal(what)
			}
		}
	}
	before := cycles()
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- SaveMemory(ctx, &ready) }()
	await(before+1, "not so much is collected at the start, and once the parts have begun")
	before = cycles()
	garbage = make([]byte, 26<<20)
	garbage = nil
	await(before, "26 MiB of garbage beside 64 MiB are not collected")
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	runtime.KeepAlive(held)
}

// What is garbage once all parts have begun goes back to the operating system.
func TestMemoryOfTheBeginningIsGivenBack(t *testing.T) {
	t.Setenv("GOGC", "")
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		var ready live.Value[bool]
		ready.Store(true)
		ended := make(chan error)
		go func() { ended <- SaveMemory(ctx, &ready) }()
		synctest.Wait() // it has given back what there was when the service was ready
		garbage = make([]byte, 256<<20)
		garbage = nil
		time.Sleep(2 * settling)
		sample := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}}
		if metrics.Read(sample); sample[0].Value.Uint64() > 32<<20 {
			t.Errorf("%d MiB are kept", sample[0].Value.Uint64()>>20)
		}
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

var garbage []byte

// percent is what SetGCPercent was last given.
func percent() int {
	was := debug.SetGCPercent(100)
	debug.SetGCPercent(was)
	return was
}
