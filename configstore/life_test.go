package configstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestCloseEndsEveryCallAndWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life := NewLife()
		ended := make(chan error, 3)
		for range 3 {
			inside, leave, err := life.enter(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				<-inside.Done()
				time.Sleep(time.Second) // as it lets go of things
				ended <- context.Cause(inside)
				leave()
			}()
		}
		begin := time.Now()
		if !life.Close() || time.Since(begin) != time.Second {
			t.Errorf("Close took %s; want that it is the first and waits for the calls", time.Since(begin))
		}
		for range 3 {
			if err := <-ended; !errors.Is(err, ErrClosed) {
				t.Errorf("a call ended with %v", err)
			}
		}
		if life.Close() {
			t.Error("a second Close is the first")
		}
		if _, _, err := life.enter(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("a call after Close: %v", err)
		}
	})
}

func TestACallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life := NewLife()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		inside, leave, err := life.enter(ctx)
		if err != nil {
			t.Fatal(err)
		}
		<-inside.Done()
		if cause := context.Cause(inside); !errors.Is(cause, context.DeadlineExceeded) {
			t.Errorf("it ended with %v", cause)
		}
		leave()
		if _, _, err := life.enter(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call with a context that has ended: %v", err)
		}
		life.Close()
	})
}
