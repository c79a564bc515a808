package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// pace is how often a stream of calls makes one.
const pace = 5 * time.Millisecond

// calling runs a stream of calls from checkout to orders while f runs.
func (w *world) calling(ctx context.Context, f func(*stream) error) (*stream, error) {
	s := &stream{pace: pace, call: func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		reply, err := w.checkout.Invoke(ctx, "orders", "hello", nil)
		if err != nil {
			return "", err
		}
		return reply.Cluster, nil
	}}
	running, stop := context.WithCancel(ctx)
	var caller sync.WaitGroup
	caller.Go(func() { s.run(running) })
	err := f(s)
	stop()
	caller.Wait()
	return s, err
}

// moves waits until calls are answered in a cluster, from a moment on.
func (s *stream) moves(ctx context.Context, cluster string, from time.Time) (time.Duration, error) {
	s.expect(cluster)
	var first time.Time
	err := eventually(ctx, time.Minute, func() (err error) {
		var ok bool
		if first, ok = s.answered(cluster); !ok {
			_, last := s.failed(from)
			err = fmt.Errorf("no call was answered in %s; the last error: %w", cluster, last)
		}
		return err
	})
	return first.Sub(from), err
}

// change sends checkout's calls to east and back while they run.
func (w *world) change(ctx context.Context, p *printer) error {
	p.say("  checkout calls orders every %s meanwhile.", pace)
	s, err := w.calling(ctx, func(s *stream) error {
		if _, err := s.moves(ctx, "west", time.Now()); err != nil {
			return err
		}
		if err := w.apply(ctx, p, "checkout-to-east.yaml", checkoutToEast, nil, "--dry-run"); err != nil {
			return err
		}
		for _, to := range []struct{ file, text, cluster string }{
			{"checkout-to-east.yaml", checkoutToEast, "east"}, {"checkout-to-local.yaml", checkoutToLocal, "west"},
		} {
			from := time.Now()
			if err := w.apply(ctx, p, to.file, to.text, nil); err != nil {
				return err
			}
			took, err := s.moves(ctx, to.cluster, from)
			if err != nil {
				return err
			}
			p.say("  calls are answered in %s %s after the command began.", to.cluster, took.Round(time.Millisecond))
			time.Sleep(300 * time.Millisecond)
		}
		return nil
	})
	p.say("  %s", s.result())
	if failed, last := s.failed(time.Time{}); err == nil && failed > 0 {
		return fmt.Errorf("%d calls failed, the last with: %w", failed, last)
	}
	return err
}

// kill ends the only orders in west with SIGKILL, and starts another.
func (w *world) kill(ctx context.Context, p *printer) error {
	p.command(fmt.Sprintf("kill -9 %d      # daprd of orders in west", w.orders.PID()))
	var moved time.Time // when east had taken over
	s, err := w.calling(ctx, func(s *stream) error {
		if _, err := s.moves(ctx, "west", time.Now()); err != nil {
			return err
		}
		from := time.Now()
		if err := w.orders.Kill(); err != nil {
			return err
		}
		took, err := s.moves(ctx, "east", from)
		if err != nil {
			return err
		}
		moved = from.Add(took)
		p.say("  the first call was answered in east %s after the kill.", took.Round(time.Millisecond))
		time.Sleep(500 * time.Millisecond)
		return w.comeBack(ctx, p, s)
	})
	p.say("  %s", s.result())
	if failed, _ := s.failed(time.Time{}); failed > 0 {
		p.say("  (those that failed were under way to the killed instance: daprd repeats a call at the address it began with)")
	}
	if failed, last := s.failed(moved); err == nil && failed > 0 {
		return fmt.Errorf("%d calls failed that began after east had taken over, the last with: %w", failed, last)
	}
	return err
}

// comeBack starts another orders in west, which is preferred.
func (w *world) comeBack(ctx context.Context, p *printer, s *stream) error {
	if _, err := w.isthmus(ctx, p, nil, "explain", "--from", "shop/checkout", "orders"); err != nil {
		return err
	}
	p.say("  A new instance of orders starts in west:")
	if _, err := w.west.Sidecar(ctx, sandbox.SidecarOptions{App: shop("orders"), Instance: "2"}); err != nil {
		return err
	}
	if _, err := s.moves(ctx, "west", time.Now()); err != nil {
		return err
	}
	p.say("  it is preferred again, being local.")
	return nil
}
