package login

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatIsKeptLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sessions[string]{most: 10, life: 8 * time.Hour, idle: 2 * time.Hour}
		id := k.add("ann")
		_, gone, _, _ := k.get(id, true)
		for range 7 { // used once an hour
			time.Sleep(time.Hour)
			if v, _, _, ok := k.get(id, true); !ok || v != "ann" {
				t.Fatalf("after %v: %q, %v", time.Hour, v, ok)
			}
		}
		if _, _, until, _ := k.get(id, true); time.Until(until) != time.Hour {
			t.Errorf("%v are left of 8 hours", time.Until(until))
		}
		time.Sleep(time.Hour)
		if _, _, _, ok := k.get(id, true); ok || gone.Err() == nil {
			t.Error("it lives longer than 8 hours")
		}
		id = k.add("ben")
		time.Sleep(time.Hour)
		k.get(id, false)
		time.Sleep(time.Hour)
		if _, _, _, ok := k.get(id, true); ok {
			t.Error("asking for it without using it has kept it")
		}
	})
}

func TestTheIdlestGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sessions[int]{most: 3, life: forever, idle: forever}
		ids := make([]string, 5)
		for i := range 3 {
			ids[i] = k.add(i)
			time.Sleep(time.Second)
		}
		k.get(ids[0], true)
		time.Sleep(time.Second)
		for i := 3; i < 5; i++ {
			ids[i] = k.add(i)
			time.Sleep(time.Second)
		}
		for i, want := range []bool{true, false, false, true, true} {
			if _, _, _, ok := k.get(ids[i], false); ok != want {
				t.Errorf("%d is kept: %v", i, ok)
			}
		}
	})
}

func TestOneTakes(t *testing.T) {
	k := sessions[int]{most: 3, life: time.Hour, idle: time.Hour}
	id := k.add(1)
	var took atomic.Int32
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, ok := k.take(id); ok {
				took.Add(1)
			}
		})
	}
	if all.Wait(); took.Load() != 1 {
		t.Errorf("%d have taken one value", took.Load())
	}
}
