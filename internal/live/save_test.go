package live

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSaveWritesSoonAfterAChangeAndAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v Value[int]
		var written []int
		var failing atomic.Bool
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			v.Save(ctx, Saving{Delay: 100 * time.Millisecond, Factor: 10, Most: time.Second, Retry: 5 * time.Second}, func(n int) error {
				time.Sleep(time.Second) // a slow disk
				if failing.Load() {
					return errors.New("full")
				}
				written = append(written, n)
				return nil
			})
		}()
		step := func(stored int, wait time.Duration, want ...int) {
			t.Helper()
			v.Store(stored)
			time.Sleep(wait)
			synctest.Wait()
			if !slices.Equal(written, want) {
				t.Errorf("after %d: written %v, want %v", stored, written, want)
			}
		}
		time.Sleep(time.Minute)
		step(1, 50*time.Millisecond) // more may come
		step(2, 2*time.Second, 2)
		failing.Store(true)
		step(3, 3*time.Second, 2)
		failing.Store(false)
		time.Sleep(9 * time.Second) // the retry
		step(4, 3*time.Second, 2, 3, 4)
		v.Store(5)
		cancel()
		<-done
		if want := []int{2, 3, 4, 5}; !slices.Equal(written, want) {
			t.Errorf("written %v, want %v", written, want)
		}
	})
}
