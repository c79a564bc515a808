package peering

import (
	"testing"
	"testing/synctest"
	"time"
)

func (l *lease) isOut() bool {
	select {
	case <-l.out():
		l.lapse()
		return true
	default:
		return false
	}
}

func TestALeaseRunsFromTheLatestWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(10 * time.Second)
		defer l.stop()
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		pass(time.Hour)
		if l.isOut() {
			t.Error("a lease ran out before the first word")
		}
		if !l.heard() {
			t.Error("the first word did not begin the lease")
		}
		pass(9 * time.Second)
		if l.heard() {
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
		if !l.heard() {
			t.Error("a word after the end did not begin a new lease")
		}
	})
}

func TestALeaseOfAnotherLengthCountsFromTheLatestWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLease(10 * time.Second)
		defer l.stop()
		l.heard()
		time.Sleep(4 * time.Second)
		l.extend(20 * time.Second)
		time.Sleep(15 * time.Second)
		if l.isOut() {
			t.Error("a longer lease ran out 19 s after the latest word, not 20")
		}
		l.extend(5 * time.Second)
		synctest.Wait()
		if !l.isOut() {
			t.Error("a shorter lease stands 19 s after the latest word, not 5")
		}
		l.extend(30 * time.Second)
		time.Sleep(time.Minute)
		if l.isOut() {
			t.Error("a lease that had run out did so again without a word")
		}
	})
}

func TestALeaseIsNeverShorterThanRenewalsKeepUp(t *testing.T) {
	if l := newLease(100 * time.Millisecond); l.after != minLease {
		t.Errorf("lasts %s", l.after)
	}
}
