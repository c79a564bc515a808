package consulapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/silentclient"
)

// TestWhoSendsNoBodyIsCutOff, whatever it asks for: also where nobody reads the body that it
// has announced. Else its connection would be held for ever.
func TestWhoSendsNoBodyIsCutOff(t *testing.T) {
	t.Parallel()
	i := ours(t)
	address := strings.TrimPrefix(i.url, "http://")
	var all sync.WaitGroup
	defer all.Wait()
	for _, line := range []string{
		"GET /v1/agent/self", "GET /v1/health/service/orders", "PUT /v1/agent/service/register", "PUT /v1/agent/check/pass/x",
		"POST /v1/agent/self", "OPTIONS /v1/agent/self", "PUT /nowhere", "POST /", "PUT /v1/agent/%01", "GET /v1/agent/self?%zz",
	} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			defer c.Close()
			_, _ = io.WriteString(c, line+" HTTP/1.1\r\nHost: localhost\r\nX-Consul-Token: c-token-1\r\nContent-Length: 100\r\n\r\n{")
			_ = c.SetReadDeadline(time.Now().Add(time.Minute + bodyTimeout))
			if _, err := io.Copy(io.Discard, c); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Errorf("%s: the connection is open after more than a minute", line)
			}
		})
	}
}

// TestALongAnswerIsNoSlowBody: who waits for a change longer than a body may take is answered.
func TestALongAnswerIsNoSlowBody(t *testing.T) {
	t.Parallel()
	i := ours(t)
	r := i.do(t, "checkout", "GET", "/v1/health/service/orders", "")
	began := time.Now()
	r = i.do(t, "checkout", "GET", "/v1/health/service/orders?wait=11s&index="+r.header.Get("X-Consul-Index"), "")
	if r.code != 200 || time.Since(began) < bodyTimeout {
		t.Errorf("%d after %s", r.code, time.Since(began))
	}
}

// TestOnlyWhoSaysNothingIsCutOff: half a head, and no further request; an answer may take as long as a
// blocking query.
func TestOnlyWhoSaysNothingIsCutOff(t *testing.T) {
	const blocking = 10 * time.Minute
	for text, limit := range map[string]time.Duration{
		"GET / HTTP/1.1\r\nHos":                   headerTimeout,
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n":       idleTimeout,
		"GET /blocks HTTP/1.1\r\nHost: x\r\n\r\n": blocking + idleTimeout,
	} {
		silentclient.IsClosed(t, text, limit, func(ctx context.Context, l net.Listener) error {
			server := impatient(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
				if q.URL.Path == "/blocks" {
					select {
					case <-time.After(blocking):
					case <-q.Context().Done():
					}
				}
			}))
			context.AfterFunc(ctx, func() { server.Close() })
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
}
