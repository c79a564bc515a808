package dial

import (
	"testing"
	"time"
)

// Calls that are tried where it is slow are to be few: one call in a while tells.
func TestAPaceKnowsOfSlownessByOneCall(t *testing.T) {
	var p latency
	at := time.Second
	for range 100 {
		at += 100 * time.Millisecond
		p.observe(at, 6*time.Millisecond)
	}
	p.observe(at, 250*time.Millisecond)
	const much = slowFactor * 0.006
	if mean, _ := p.current(at + 6*time.Second); mean < much {
		t.Errorf("6 s after a slow call the mean is %.3f s, want %.3f s at least", mean, much)
	}
	if mean, _ := p.current(at + 10*time.Second); mean > much {
		t.Errorf("10 s after a slow call the mean is %.3f s, and it is not tried again", mean)
	}
	at += 10 * time.Second
	p.observe(at, 6*time.Millisecond)
	p.observe(at, time.Hour) // a stream
	if mean, _ := p.current(at + 25*time.Second); mean > much {
		t.Errorf("25 s after a stream the mean is %.3f s, and the instance not tried again", mean)
	}
}

func TestThePaceOfAnInstanceIsThatByEveryGateway(t *testing.T) {
	w := newTestDialer(t)
	a, b := startGateway(t), startGateway(t)
	w.setRoutes(map[string][]string{"east": {a.Address, b.Address}}, gatewayRoute("east", 0))
	conn := w.dial(t)
	callUntil(t, conn, a.Address)
	callUntil(t, conn, b.Address)
	conns := w.watcher.connections()
	if len(conns) != 2 || conns[0].endpoint == conns[1].endpoint || conns[0].endpoint.latency != conns[1].endpoint.latency {
		t.Errorf("%d connections, want two with one pace", len(conns))
	}
}
