package dial

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// load is several callers that each make one call after the other.
type load struct {
	calls, failures atomic.Int64
	mu              sync.Mutex
	last            time.Time
	gap             time.Duration // longest time without any answer
	longest         time.Duration // longest call
	cancel          context.CancelFunc
	callers         sync.WaitGroup
}

func startLoad(t *testing.T, conn *grpc.ClientConn, callers int) *load {
	ctx, stop := context.WithCancel(t.Context())
	s := &load{last: time.Now(), cancel: stop}
	for range callers {
		s.callers.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				err := invoke(t.Context(), conn, time.Minute)
				s.calls.Add(1)
				if err != nil {
					s.failures.Add(1)
					t.Errorf("call: %v after %s", err, time.Since(began))
				}
				s.mu.Lock()
				if err == nil {
					s.gap = max(s.gap, time.Since(s.last))
					s.last = time.Now()
				}
				s.longest = max(s.longest, time.Since(began))
				s.mu.Unlock()
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	return s
}

func (s *load) stop() { s.cancel(); s.callers.Wait() }
