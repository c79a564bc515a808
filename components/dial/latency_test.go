package dial

import (
	"testing"
	"time"
)

// Few calls should go to a slow instance, so one call in a while has to suffice.
func TestOneCallShowsThatAnInstanceIsSlow(t *testing.T) {
	var l latency
	at := time.Second
	for range 100 {
		at += 100 * time.Millisecond
		l.observe(at, 6*time.Millisecond)
	}
	l.observe(at, 250*time.Millisecond)
	const much = slowFactor * 0.006
	if mean, _ := l.current(at + 6*time.Second); mean < much {
		t.Errorf("6 s after a slow call the mean is %.3f s, want %.3f s at least", mean, much)
	}
	if mean, _ := l.current(at + 10*time.Second); mean > much {
		t.Errorf("10 s after a slow call the mean is %.3f s, so the instance is not tried again", mean)
	}
	at += 10 * time.Second
	l.observe(at, 6*time.Millisecond)
	l.observe(at, time.Hour) // a stream
	if mean, _ := l.current(at + 25*time.Second); mean > much {
		t.Errorf("25 s after a stream the mean is %.3f s, so the instance is not tried again", mean)
	}
}

func TestGatewaysShareTheLatencyOfAnInstance(t *testing.T) {
	w := newTestDialer(t)
	a, b := startGateway(t), startGateway(t)
	w.setRoutes(map[string][]string{"east": {a.Address, b.Address}}, gatewayRoute("east", 0))
	conn := w.dial(t)
	callUntil(t, conn, a.Address)
	callUntil(t, conn, b.Address)
	conns := w.watcher.connections()
	if len(conns) != 2 || conns[0].endpoint == conns[1].endpoint || conns[0].endpoint.instance != conns[1].endpoint.instance {
		t.Errorf("%d connections, want two of one instance", len(conns))
	}
}

// An instance with a penalty has one call in 200, so few calls have to suffice.
func TestFewCallsShowThatAnInstanceHasRecovered(t *testing.T) {
	var l latency
	l.observe(time.Second, 200*time.Millisecond)
	l.penalty.Store(200)
	for n := range 6 {
		l.observe(time.Second+time.Duration(n)*trialInterval, time.Millisecond)
	}
	if mean := l.seconds(); mean > slowMargin {
		t.Errorf("after 6 quick calls the mean is %.3f s", mean)
	}
}
