// Package sandbox runs the real parts of a mesh on loopback and cleans up after
// them: Dapr's Sentry and sidecars, Isthmus services, small apps, a receiver for
// traces. "isthmus demo" and the whole-system tests stand on it.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// stopTimeout bounds how long Close waits for processes to end by themselves.
const stopTimeout = 30 * time.Second

// Sandbox owns what it started. It is safe for use by many goroutines.
type Sandbox struct {
	dir    string
	log    *slog.Logger
	place  Place
	client *http.Client

	mu        sync.Mutex
	processes []*Process
	servers   []func() // stop what runs in this process
}

// New returns a sandbox that keeps its files and the logs of its processes in dir.
func New(dir string, log *slog.Logger) (*Sandbox, error) { return NewIn(nil, dir, log) }

// NewIn is [New] for a sandbox that is in a place, so that what is said of loopback is said
// of the loopback there.
func NewIn(place Place, dir string, log *slog.Logger) (*Sandbox, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("sandbox in %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	return &Sandbox{dir: dir, log: log, place: place, client: newClient(place)}, nil
}

// Dir is where the sandbox keeps its files; the log of process NAME is NAME.log.
func (s *Sandbox) Dir() string { return s.dir }

// Close stops everything that is still up and returns when it is gone: first all
// processes together, then what they may still talk to in this process.
func (s *Sandbox) Close() error {
	s.mu.Lock()
	processes, servers := s.processes, s.servers
	s.processes, s.servers = nil, nil
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	errs := make([]error, len(processes))
	var wg sync.WaitGroup
	for i, p := range processes {
		wg.Go(func() { errs[i] = p.Stop(ctx) })
	}
	wg.Wait()
	for _, stop := range servers {
		stop()
	}
	s.client.CloseIdleConnections()
	return errors.Join(errs...)
}

// Unexpected names the processes that have ended though nobody here told them to; nil
// when there is none.
func (s *Sandbox) Unexpected() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, p := range s.processes {
		errs = append(errs, p.Unexpected())
	}
	return errors.Join(errs...)
}

func (s *Sandbox) onClose(stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers = append(s.servers, stop)
}

// run starts a process that the sandbox stops on Close, and waits until it is ready.
// A process that does not get ready is stopped at once.
func (s *Sandbox) run(ctx context.Context, c Command) (*Process, error) {
	c.Place = s.place
	p, err := Start(c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.processes = append(s.processes, p)
	s.mu.Unlock()
	if err := p.WaitReady(ctx); err != nil {
		return nil, errors.Join(err, p.Kill())
	}
	s.log.Info("started", "process", c.Name, "pid", p.PID(), "log", p.LogFile())
	return p, nil
}

// file writes a file of a process and returns its path.
func (s *Sandbox) file(name string, content []byte) (string, error) {
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("sandbox: %w", err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("sandbox: %w", err)
	}
	return path, nil
}
