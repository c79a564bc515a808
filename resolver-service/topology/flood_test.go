package topology

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/logged"
)

// TestTakeoversAreLoggedNowAndThen has one app take addresses from others without end.
func TestTakeoversAreLoggedNowAndThen(t *testing.T) {
	var log logged.Buffer
	top := New(west, slog.New(slog.NewTextHandler(&log, nil)))
	ctx, stop := context.WithCancel(t.Context())
	var owner sync.WaitGroup
	owner.Go(func() { _ = top.Run(ctx) })
	defer owner.Wait()
	defer stop()
	top.must(t, full())
	const takeovers = 1000
	for i := range takeovers {
		at := fmt.Sprintf("10.1.%d.%d:50002", i/250, i%250)
		top.must(t, runs(fmt.Sprintf("victim-%d", i%7), "v"+at, at))
		top.must(t, registers(1, runs("hostile", "h"+at, at)))
	}
	n := strings.Count(log.String(), "address reassigned from one app to another")
	if n < 1 || n > 100 {
		t.Errorf("%d lines for %d takeovers", n, takeovers)
	}
}
