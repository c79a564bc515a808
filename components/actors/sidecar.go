package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// Sidecar is the bridge's own sidecar, which has the bridge's tokens. Run is called once; Restart
// has it read its app's configuration again, and returns once it is about to.
type Sidecar interface {
	Run(context.Context, Tokens) error
	Restart(context.Context, Tokens) error
}

// Injected is a sidecar that somebody else starts, as Kubernetes does, and starts again when it
// ends.
type Injected struct{ Daprd string } // host:port of its HTTP API

// Run fails if the sidecar takes calls of others. Otherwise it returns when the sidecar has ended
// after ctx has, as where both end with their pod.
func (s Injected) Run(ctx context.Context, _ Tokens) error {
	if err := refusesOthers(ctx, s.Daprd); err != nil {
		return err
	}
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	for live.Sleep(end, 100*time.Millisecond) {
		conn, err := new(net.Dialer).DialContext(end, "tcp", s.Daprd)
		if err != nil {
			return nil
		}
		conn.Close()
	}
	return nil
}

// Restart tells the sidecar to end.
func (s Injected) Restart(ctx context.Context, tokens Tokens) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Daprd+"/v1.0/shutdown", nil)
	if err != nil {
		return err
	}
	tokens.show(req.Header)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("tell the sidecar at %s to end: %w", s.Daprd, err)
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("tell the sidecar at %s to end: %s", s.Daprd, res.Status)
	}
	return nil
}

// Child is a sidecar that the bridge starts itself, and starts again when it ends.
type Child struct {
	Command []string // of daprd
	Log     *slog.Logger

	again chan struct{} // has room for one: it is to be started again
}

// NewChild makes a Child, and starts nothing.
func NewChild(command []string, log *slog.Logger) *Child {
	return &Child{Command: command, Log: log, again: make(chan struct{}, 1)}
}

// stopTimeout is how long a sidecar may take to end.
const stopTimeout = 10 * time.Second

// Run keeps the sidecar running until ctx ends.
func (c *Child) Run(ctx context.Context, tokens Tokens) error {
	for failures := 0; ctx.Err() == nil; failures++ {
		start := time.Now()
		err := c.live(ctx, tokens)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errAgain) || time.Since(start) > time.Minute:
			failures = -1
		default:
			c.Log.Warn("the sidecar has ended; starting it again", "err", err)
			live.Sleep(ctx, live.Backoff(200*time.Millisecond, 10*time.Second, failures))
		}
	}
	return nil
}

var errAgain = errors.New("it was told to start again")

// live starts the sidecar and waits until it has ended.
func (c *Child) live(ctx context.Context, tokens Tokens) error {
	cmd := exec.Command(c.Command[0], c.Command[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env, cmd.SysProcAttr = tokens.environment(), endsWithParent()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the sidecar: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var why error
	select {
	case err := <-done:
		return err
	case <-c.again:
		why = errAgain
	case <-ctx.Done():
		why = ctx.Err()
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended just now
	select {
	case <-done:
	case <-time.After(stopTimeout):
		_ = cmd.Process.Kill()
		<-done
	}
	return why
}

// Restart has the sidecar started again.
func (c *Child) Restart(context.Context, Tokens) error {
	select {
	case c.again <- struct{}{}:
	default:
	}
	return nil
}
