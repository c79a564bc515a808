package dial

import (
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/stalls"
)

func TestASlowInstanceHasFewCalls(t *testing.T) {
	instances, conn := startFive(t, direct)
	instances[0].after.Store(int64(200 * time.Millisecond)) // far more than the others take
	const calls = 200                                       // one after the other: instances are equal but for their latency
	for deadline := time.Now().Add(time.Minute); ; {
		before := instances[0].given.Load()
		for range calls {
			if err := invoke(t.Context(), conn, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		given := instances[0].given.Load() - before
		t.Logf("%d of %d calls", given, calls)
		if given < calls/20 { // its share would be a fifth
			break
		}
		if time.Now().After(deadline) { // latencies are known, and the machine is not that slow
			t.Fatalf("the slow instance has %d of %d calls", given, calls)
		}
	}
	instances[0].after.Store(int64(time.Millisecond))
	waitForShare(t, conn, instances)
}

// The limit is not for a busy machine: there the clock runs on while few calls are made.
func TestAnInstanceThatRecoversHasItsShareSoon(t *testing.T) {
	const limit, enoughCalls = 8 * time.Second, 8000
	pauses := stalls.Begin(t)
	instances, conn := startFive(t, direct)
	instances[0].after.Store(int64(200 * time.Millisecond))
	callMany(t, conn, instances, 2000)
	instances[0].after.Store(int64(time.Millisecond))
	recovered, calls := time.Now(), 400
	for ; callMany(t, conn, instances, 400)[0] < 40; calls += 400 {
		if time.Since(recovered) > limit+10*pauses.Longest(recovered) && calls > enoughCalls {
			t.Fatalf("the instance has recovered, and has no share after %s and %d calls", time.Since(recovered), calls)
		}
	}
	t.Logf("it had its share after %s and %d calls", time.Since(recovered).Round(time.Millisecond), calls)
}

func TestTrialsAreFew(t *testing.T) {
	c := []candidate{{instance: &instance{}, endpoints: []*endpoint{{}}}, {instance: &instance{}, endpoints: []*endpoint{{}}}}
	var s routeState
	begun := time.Now()
	tried := func(picks int) (n int) {
		for range picks {
			switch s.trial(c, uint32(s.next.Add(1))) {
			case &c[0]:
				t.Fatal("an instance that is not slow was tried")
			case &c[1]:
				n++
			}
		}
		return n
	}
	time.Sleep(trialInterval)
	if n := tried(10 * trialEvery); n > 0 {
		t.Errorf("%d trials without a slow instance", n)
	}
	time.Sleep(trialInterval)
	c[1].instance.latency.penalty.Store(50)
	if n, most := tried(10*trialEvery), 1+int(time.Since(begun)/trialInterval); n == 0 || n > most {
		t.Errorf("%d trials, want 1 to %d", n, most)
	}
	time.Sleep(trialInterval)
	if n := tried(trialEvery); n != 1 {
		t.Errorf("%d trials in %d calls, want 1", n, trialEvery)
	}
	time.Sleep(trialInterval)
	c[1].endpoints[0].calls.Store(1)
	if n := tried(2 * trialEvery); n > 0 {
		t.Error("an instance was tried beside a trial under way")
	}
}
