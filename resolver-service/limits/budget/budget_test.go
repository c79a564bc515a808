package budget

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestAClientHasItsShareAndNoMore(t *testing.T) {
	b := New(10, 4)
	first, ok := b.TryAcquire("a", 3)
	if !ok {
		t.Fatal("nobody has anything, and 3 of 10 are refused")
	}
	if _, ok := b.TryAcquire("a", 2); ok {
		t.Error("a client has 5, and its share is 4")
	}
	if _, ok := b.TryAcquire("b", 4); !ok {
		t.Error("another client is refused its share")
	}
	if _, ok := b.TryAcquire("c", 4); ok {
		t.Error("11 of 10 are taken")
	}
	first()
	first()
	if _, ok := b.TryAcquire("c", 100); !ok {
		t.Error("more than the share does not count as the share, or what was given back is not there")
	}
	if _, ok := b.TryAcquire("d", 4); ok {
		t.Error("what was given back twice counts twice")
	}
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(4, 4)
		release, _ := b.TryAcquire("a", 4)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Acquire(ctx, "b", 1); err == nil {
			t.Error("5 of 4 are taken")
		}
		time.AfterFunc(time.Second, release)
		again, err := b.Acquire(t.Context(), "b", 1)
		if err != nil {
			t.Fatal(err)
		}
		again()
		if len(b.of) != 0 {
			t.Errorf("%d clients are kept that have nothing", len(b.of))
		}
	})
}
