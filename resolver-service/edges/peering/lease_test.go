package peering

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// isOut tells whether the lease has ended.
func (l *lease) isOut() bool {
	select {
	case <-l.timer.C:
		l.tick()
	default:
	}
	return l.state().lapses > 0 && !l.state().fresh
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestALeaseRunsFromTheLatestWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(10 * time.Second)
		defer l.stop()
		pass(time.Hour)
		if l.isOut() {
			t.Error("a lease ran out before the first word")
		}
		if !l.renew(time.Now()) {
			t.Error("the first word did not begin the lease")
		}
		pass(9 * time.Second)
		if l.renew(time.Now()) {
			t.Error("a word within the lease counts as a new one")
		}
		pass(9 * time.Second)
		if l.isOut() {
			t.Error("the lease ran out 9 s after the latest word, not 10")
		}
		pass(time.Second)
		if !l.isOut() {
			t.Error("the lease did not run out 10 s after the latest word")
		}
		if !l.renew(time.Now()) {
			t.Error("a word after the end did not begin a new lease")
		}
	})
}

func TestALeaseOfAnotherLengthCountsFromTheLatestWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(10 * time.Second)
		defer l.stop()
		l.renew(time.Now())
		time.Sleep(4 * time.Second)
		l.setStaleAfter(30 * time.Second)
		pass(25 * time.Second)
		if l.isOut() {
			t.Error("a longer lease ran out 29 s after the latest word, not 30")
		}
		l.setStaleAfter(2 * time.Second)
		pass(999 * time.Millisecond)
		if l.isOut() {
			t.Error("a shorter lease ended before the one that the word came under, with no time for another word")
		}
		pass(time.Millisecond)
		if !l.isOut() {
			t.Error("a shorter lease stands longer than the one before would have")
		}
		l.setStaleAfter(30 * time.Second)
		pass(time.Minute)
		if l.state().lapses != 1 {
			t.Error("a lease that had run out did so again without a word")
		}
	})
}

func TestAShorterLeaseGivesThePeerTimeForAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(time.Hour)
		defer l.stop()
		l.renew(time.Now())
		pass(time.Minute)
		l.setStaleAfter(2 * time.Second)
		pass(shortenGrace - time.Millisecond)
		if l.isOut() {
			t.Error("it ended before the peer could have been asked")
		}
		pass(time.Millisecond)
		if !l.isOut() {
			t.Error("it did not end")
		}
	})
}

func TestALeaseIsNeverShorterThanRenewalsKeepUp(t *testing.T) {
	if l := newLease(100 * time.Millisecond); l.after != minLease {
		t.Errorf("lasts %s", l.after)
	}
	for after, want := range map[time.Duration]time.Duration{
		time.Second: minRenew, 2 * time.Second: minRenew, 10 * time.Second: 1250 * time.Millisecond, time.Hour: maxRenew,
	} {
		if got := renewInterval(after); got != want {
			t.Errorf("a lease of %s is renewed every %s, want %s", after, got, want)
		}
	}
}

func TestAProcessThatWasHeldUpListensBeforeItGivesAPeerUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(2 * time.Second)
		defer l.stop()
		l.renew(time.Now())
		pass(7 * time.Second) // nobody looks at the timer
		if l.isOut() {
			t.Error("it ended at once")
		}
		l.renew(time.Now())
		pass(7 * time.Second)
		if l.isOut() {
			t.Error("it ended at once")
		}
		pass(lateTimerGrace)
		if !l.isOut() {
			t.Error("it did not end a moment later")
		}
	})
}

func TestALeaseThatEndsEarlySaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(time.Hour)
		defer l.stop()
		if l.end("nothing") {
			t.Error("ended before the first word")
		}
		l.renew(time.Now())
		if !l.end("its gateways refuse connections") || l.end("again") {
			t.Error("not ended, or twice")
		}
		if s := l.state(); s.fresh || s.usable || s.reason != "its gateways refuse connections" || s.left != 0 {
			t.Errorf("%+v", s)
		}
		if !l.renew(time.Now()) || !l.state().usable {
			t.Error("a word did not begin a new lease")
		}
	})
}

func TestAPeerThatComesAndGoesIsDamped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(2 * time.Second)
		defer l.stop()
		for range 2 {
			l.renew(time.Now())
			pass(2 * time.Second)
			l.tick()
			if s := l.state(); !s.damped.IsZero() {
				t.Fatalf("damped after %d lapses: %+v", s.lapses, s)
			}
		}
		l.renew(time.Now())
		pass(2 * time.Second)
		l.tick()
		s := l.state()
		if left := time.Until(s.damped); left < 40*time.Second || left > 48*time.Second || s.recent != 3 {
			t.Fatalf("3 lapses in 6 s: damped for %s, %+v", left, s)
		}
		if l.renew(time.Now()); l.state().usable {
			t.Error("relied on while it is damped")
		}
		for !l.state().usable {
			select {
			case <-l.timer.C:
				l.tick()
			case <-time.After(250 * time.Millisecond):
				l.renew(time.Now())
			}
		}
		if now := time.Now(); now.Before(s.damped) || now.Sub(s.damped) > time.Second {
			t.Errorf("relied on again %s after it was to be", now.Sub(s.damped))
		}
	})
}

func TestDampingEndsAtMostTwoMinutesAfterTheLatestLapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d damping
		for range 1000 {
			d.lapse(time.Now())
			time.Sleep(time.Second)
		}
		if left := time.Until(d.until()); left > maxSuppress || left < maxSuppress-2*time.Second {
			t.Errorf("after 1000 lapses it is damped for %s", left)
		}
		time.Sleep(maxSuppress)
		d.release(time.Now())
		if d.suppressed {
			t.Error("still damped")
		}
	})
}

func TestLapsesThatAreRareAreNotDamped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d damping
		for range 100 {
			d.lapse(time.Now())
			time.Sleep(30 * time.Second)
		}
		if d.suppressed {
			t.Error("one lapse in 30 s is damped")
		}
	})
}

func TestTheTimesOfLapsesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(10 * time.Second)
		defer l.stop()
		l.renew(time.Now())
		time.Sleep(10 * time.Second)
		l.tick()
		ran := time.Now()
		time.Sleep(5 * time.Second)
		l.renew(time.Now())
		back := time.Now()
		time.Sleep(time.Second)
		l.end("its gateways refuse connections")
		want := []lapse{{at: ran, back: back}, {at: time.Now(), why: "its gateways refuse connections"}}
		if got := l.state().log; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
