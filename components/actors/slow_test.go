package actors

import (
	"log/slog"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/silentclient"
)

// TestAClientThatSaysNothingHoldsNoConnection: half a request, and none after one that was answered.
func TestAClientThatSaysNothingHoldsNoConnection(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for text, limit := range map[string]time.Duration{
		"GET /healthz HTTP/1.1\r\nHos":             headerTimeout,
		"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n": quietTimeout,
	} {
		b := &Bridge{log: log, often: throttle.New(log, time.Minute)}
		silentclient.IsClosed(t, text, limit, b.serve)
	}
}
