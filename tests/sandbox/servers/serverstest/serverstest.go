// Package serverstest has the real servers that the tests of a package share, each started
// by the first test that needs it, and what such tests do with them: reach them by a link of
// their own, restart them, and wait for what comes of it.
package serverstest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// startLimit is how long a server may take to start, and to end before that.
const startLimit = 5 * time.Minute

// Main runs the tests of a package, ends the servers that they shared, and then fails if
// goroutines are left after a minute. It does not return.
func Main(m *testing.M, ends ...func()) {
	code := m.Run()
	for _, end := range ends {
		end()
	}
	for limit := time.Now().Add(time.Minute); code == 0; {
		err := goleak.Find()
		if err == nil {
			break
		}
		if time.Now().After(limit) {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Start starts a server for one test, by a function such as servers.StartEtcd, and kills it
// with the test. It skips the test as [programstest.OrSkip] does.
func Start[Server interface{ Kill() error }, Options any](t testing.TB, start func(context.Context, string, Options) (Server, error), o Options) Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	server, err := start(ctx, t.TempDir(), o)
	programstest.OrSkip(t, err)
	t.Cleanup(func() {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// Server is a server that can be ended and started again.
type Server interface {
	Kill() error
	Stop(ctx context.Context) error
	Start(ctx context.Context) error
}

// Restart ends a server, with SIGKILL or as its operators do, and starts it with its data.
func Restart(t testing.TB, s Server, kill bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	end := s.Kill
	if !kill {
		end = func() error { return s.Stop(ctx) }
	}
	if err := errors.Join(end(), s.Start(ctx)); err != nil {
		t.Fatal(err)
	}
}

// Await waits until a server, or who hears of it, is as it should be, for a minute.
func Await(t testing.TB, what string, is func() bool) {
	t.Helper()
	const limit = time.Minute
	for end := time.Now().Add(limit); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// Secret is a password or token in a file of its own; the empty one is none.
func Secret(t testing.TB, text string) *settings.Secret {
	t.Helper()
	if text == "" {
		return nil
	}
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &settings.Secret{File: path}
}
