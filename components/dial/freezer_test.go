package dial

import (
	"context"
	"net"
	"sync"
	"testing"
)

// freezer stands for a process that can hang: while it is frozen, connections are accepted but no
// byte passes.
type freezer struct {
	mu     sync.Mutex
	frozen chan struct{} // closed by thaw; nil while it is not frozen
}

func (f *freezer) freeze() { f.mu.Lock(); defer f.mu.Unlock(); f.frozen = make(chan struct{}) }
func (f *freezer) thaw()   { f.mu.Lock(); defer f.mu.Unlock(); close(f.frozen); f.frozen = nil }

// wait returns once the freezer is not frozen, or ctx has ended.
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

// proxy passes connections on to an address.
func (f *freezer) proxy(t *testing.T, to string) (address string) {
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
