package pages

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console/login"
)

// TestABrowserThatReadsNothingIsGone once its stream has lasted long enough, and streams are bounded.
func TestABrowserThatReadsNothingIsGone(t *testing.T) {
	c, err := New(Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c.watch.lasts = 3 * time.Second
	c.watch.state.Store(state{Revision: 7, Mark: "m"})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	session := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.Handler().ServeHTTP(w, r.WithContext(login.WithSession(r.Context(), &login.Session{Person: "ann"})))
	})
	go func() { served <- Serve(ctx, l, session, nil, c.Log) }()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
	streams := func() int {
		c.watch.mu.Lock()
		defer c.watch.mu.Unlock()
		return c.watch.streams
	}
	for want := 1; want >= 0; want-- {
		for end := time.Now().Add(time.Minute); streams() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d streams, want %d", streams(), want)
			}
		}
	}
	for range mostStreams {
		if !c.watch.enter() {
			t.Fatal("too few streams are taken")
		}
	}
	if c.watch.enter() {
		t.Errorf("more than %d streams are taken", mostStreams)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
