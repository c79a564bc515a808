package serverstest

import (
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// Link is a way to a server, whose faults last until a test mends them.
type Link struct{ *servers.Proxy }

// NewLink is a link to a server at an address, host:port, that is closed with the test.
func NewLink(t testing.TB, addr string) Link {
	t.Helper()
	proxy, err := servers.NewProxy(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return Link{proxy}
}

// Fail refuses every connection.
func (l Link) Fail(t testing.TB) (mend func()) {
	l.Refuse()
	return l.mend(t)
}

// Cut drops every packet silently.
func (l Link) Cut(t testing.TB) (mend func()) {
	l.Drop()
	return l.mend(t)
}

// Slow delays every packet by so much each way.
func (l Link) Slow(t testing.TB, by time.Duration) (mend func()) {
	l.Delay(by)
	return l.mend(t)
}

func (l Link) mend(t testing.TB) func() {
	return func() {
		if err := l.Mend(); err != nil {
			t.Error(err)
		}
	}
}

// AtRest measures how often clients speak by the link in a minute while nothing happens, and how
// many bytes go by. Each round of the benchmark is a second.
func (l Link) AtRest(b *testing.B) {
	b.Helper()
	time.Sleep(2 * time.Second) // until what the start has begun has ended
	before, began := l.Traffic(), time.Now()
	for b.Loop() {
		time.Sleep(time.Second)
	}
	now, minutes := l.Traffic(), time.Since(began).Minutes()
	b.ReportMetric(float64(now.Requests-before.Requests)/minutes, "requests/min")
	b.ReportMetric(float64(now.Sent-before.Sent)/minutes, "B-sent/min")
	b.ReportMetric(float64(now.Received-before.Received)/minutes, "B-received/min")
}
