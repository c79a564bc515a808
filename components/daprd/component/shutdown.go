package component

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// BlockShutdown is how long daprd goes on serving after SIGTERM unless its user says
// otherwise: time for the last calls by those who had not heard that it leaves.
const BlockShutdown = 2 * time.Second

const blockFlag = "dapr-block-shutdown-duration"

// Arguments returns daprd's arguments with a default for its flag
// --dapr-block-shutdown-duration.
//
// Without the flag daprd stops its servers as soon as it gets SIGTERM: a caller that
// resolved this instance a moment before is refused. With it daprd stops taking
// messages and bindings at once but serves calls until the time is over or the app
// says it is unhealthy (see --enable-app-health-check), and only then shuts down. The
// same wait comes before a reload by SIGHUP; none comes before a shutdown by API.
//
// A sidecar whose app takes no calls (no --app-port) gets no default. The default is
// put first, and daprd lets the last of two count, so what a user writes wins, also 0s.
func Arguments(args []string) []string {
	if AppOf(args) == nil {
		return args
	}
	return append([]string{args[0], "--" + blockFlag + "=" + BlockShutdown.String()}, args[1:]...)
}

// DrainOnSignals makes the component drain as soon as the process is told to stop or
// reload, beside what daprd itself does then. Call the returned function after daprd
// has ended; it waits for a drain under way.
//
// It starts listening only once a resolver is in use. Before that a signal must meet
// either Go's default or daprd's own handler: ours alone would swallow it. A signal
// that comes earlier ends the context of the resolver's Init, which drains too.
func (c *Component) DrainOnSignals() (stop func()) {
	signals := make(chan os.Signal, 1)
	ctx, cancel := context.WithCancel(context.Background())
	var once sync.Once
	var done sync.WaitGroup
	c.listen = func() {
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
			c.log.Info("leaving the views of other apps", "signal", got)
			c.drainAll(ctx)
		}
	}
}

func (c *Component) drainAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if err := c.Drain(ctx); err != nil {
		c.log.Warn("leaving the views of other apps took too long or failed; some may call this one once more", "err", err)
		return
	}
	c.log.Info("left the views of other apps")
}
