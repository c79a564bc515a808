package dial

import (
	"context"
	"net"
	"sync"
	"testing"
)

// freezer passes connections on, until it is told to pass nothing any more: as a process
// that hangs, of which the kernel still takes connections.
type freezer struct {
	mu     sync.Mutex
	frozen chan struct{} // closed when it thaws; nil when it is not frozen
}

func (f *freezer) freeze() { f.mu.Lock(); defer f.mu.Unlock(); f.frozen = make(chan struct{}) }
func (f *freezer) thaw()   { f.mu.Lock(); defer f.mu.Unlock(); close(f.frozen); f.frozen = nil }

func (f *freezer) wait(ctx context.Context) {
	f.mu.Lock()
	frozen := f.frozen
	f.mu.Unlock()
	if frozen != nil {
		select {
		case <-frozen:
		case <-ctx.Done():
		}
	}
}

func (f *freezer) before(t *testing.T, to string) (address string) {
	lis, err := net.Listen("tcp", deadAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var passing sync.WaitGroup
	pass := func(dst, src net.Conn) {
		defer dst.Close()
		b := make([]byte, 4096)
		for {
			n, err := src.Read(b)
			f.wait(ctx)
			if n > 0 {
				if _, err := dst.Write(b[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	passing.Go(func() {
		for {
			in, err := lis.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			context.AfterFunc(ctx, func() { in.Close(); out.Close() })
			passing.Go(func() { pass(out, in) })
			passing.Go(func() { pass(in, out) })
		}
	})
	t.Cleanup(func() { lis.Close(); stop(); passing.Wait() })
	return lis.Addr().String()
}
