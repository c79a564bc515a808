package process

import (
	"context"
	"runtime/debug"
	"testing"
	"testing/synctest"

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

// percent is what SetGCPercent was last given.
func percent() int {
	was := debug.SetGCPercent(100)
	debug.SetGCPercent(was)
	return was
}
