package admin

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/silentclient"
)

func TestABodyThatNeverComesHoldsNoConnection(t *testing.T) {
	for what, header := range map[string]string{"so many bytes": "Content-Length: 100", "chunks": "Transfer-Encoding: chunked"} {
		t.Run(what, func(t *testing.T) {
			text := "GET /livez HTTP/1.1\r\nHost: localhost\r\n" + header + "\r\n\r\n"
			silentclient.IsClosed(t, text, bodyTimeout, serveAlone)
		})
	}
}

// TestAClientThatSaysNothingHoldsNoConnection: half a head, and none after a request that was answered.
func TestAClientThatSaysNothingHoldsNoConnection(t *testing.T) {
	for text, limit := range map[string]time.Duration{
		"GET /livez HTTP/1.1\r\nHos":                     5 * time.Second,
		"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n": time.Minute,
	} {
		silentclient.IsClosed(t, text, limit, serveAlone)
	}
}

// serveAlone serves the admin port of a service that has nothing else.
func serveAlone(ctx context.Context, l net.Listener) error {
	s := New(Config{Registry: prometheus.NewRegistry()}, quiet)
	return s.serve(ctx, l, s.Handler())
}
