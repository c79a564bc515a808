package component

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// BlockShutdown is how long daprd continues to serve after SIGTERM by default. Callers whose view
// still has this sidecar can make their last calls meanwhile.
const BlockShutdown = 2 * time.Second

const blockFlag = "dapr-block-shutdown-duration"

// Arguments returns daprd's arguments with a default for its flag
// --dapr-block-shutdown-duration.
//
// Without the flag daprd stops its servers as soon as it gets SIGTERM, and refuses callers that
// resolved this instance a moment before. With the flag it stops taking messages and bindings at
// once. It serves calls until the time is over or the app is unhealthy (see
// --enable-app-health-check). The same wait precedes a reload by SIGHUP. A shutdown by API does not
// wait.
//
// A sidecar whose app takes no calls (no --app-port) gets no default. Of two equal flags daprd uses
// the last. The default comes first, so the user's value wins, also 0s.
func Arguments(args []string) []string {
	if AppFromArgs(args) == nil {
		return args
	}
	return append([]string{args[0], "--" + blockFlag + "=" + BlockShutdown.String()}, args[1:]...)
}

// DrainOnSignals makes the component drain as soon as the process gets a signal to stop or reload,
// in addition to what daprd does then. Call the returned function after daprd has ended; it waits
// for a drain under way.
//
// It starts listening once a resolver is in use. Before that, Go's default or daprd's own handler
// must get the signal: ours alone would swallow it. An earlier signal ends the context of the
// resolver's Init, which drains, too.
func (c *Component) DrainOnSignals() (stop func()) {
	signals := make(chan os.Signal, 1)
	ctx, cancel := context.WithCancel(context.Background())
	var once sync.Once
	var done sync.WaitGroup
	c.listenForSignals = func() {
		once.Do(func() {
			signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			done.Go(func() { c.drainOn(ctx, signals) })
		})
	}
	return func() {
		once.Do(func() {})
		signal.Stop(signals)
		cancel()
		done.Wait()
	}
}

func (c *Component) drainOn(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case got := <-signals:
			c.log.Info("removing this sidecar from the views of other apps", "signal", got)
			c.drainAll(ctx)
		}
	}
}

// drainFailed is the log message of a drain that failed.
const drainFailed = "cannot remove this sidecar from the views of other apps in time; some may still call it and be refused"

func (c *Component) drainAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if err := c.Drain(ctx); err != nil {
		c.log.Warn(drainFailed, "err", err)
		return
	}
	c.log.Info("this sidecar is removed from the views of other apps")
}
