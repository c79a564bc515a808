package process

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// gcPercent is how much garbage Go may gather, in hundredths of what is alive. What a
// service holds is large and stays, so Go's default of 100 would double it, while
// changes leave little garbage and collecting sooner costs little.
const gcPercent = 25

// SaveMemory runs until ctx ends. It has garbage collected sooner than by Go's default,
// unless the environment's GOGC says when, and once ready holds true it gives back to
// the operating system what the first reading of everything took.
func SaveMemory(ctx context.Context, ready *live.Value[bool]) error {
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	}
	if _, err := ready.Wait(ctx); err == nil {
		debug.FreeOSMemory()
	}
	<-ctx.Done()
	return nil
}
