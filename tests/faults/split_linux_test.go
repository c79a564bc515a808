package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// East can't reach west's gateways any more, while west reaches east's. Each side says so.
// What east's apps call in west goes to north, or is refused with the reason where it is
// nowhere else; what west calls in east goes on.
func split(t *testing.T, m *mesh) {
	fromEast := m.east.sidecars["orders 1"]
	meshtest.Eventually(t, meshtest.Patience, func() error { return answeredFrom(t, fromEast, "stock", "west") })
	// West's calls to east must not notice.
	x := m.newTrial(t, "east can't reach west's gateways, west reaches east's", deadline, callers("stock", fromEast), append(m.toOrders(), m.toStock()...))
	x.strike(func() error {
		for _, g := range m.west.gateways {
			m.cut(m.east.network, only(g))
		}
		return nil
	})
	x.answeredBy("north")
	here := m.says(t, m.east, "west", "it is not heard", func(p peer) bool { return p.State != "connected" && p.Error != "" })
	there := m.says(t, m.west, "east", "it is heard, and does not hear", func(p peer) bool { return p.State == "connected" && p.Hears != "" && p.Hears != "connected" })
	begun := time.Now()
	_, err := fromEast.Invoke(meshtest.Within(t, meshtest.Patience), "billing", "hello", untraced)
	took := time.Since(begun)
	if err == nil || !strings.Contains(err.Error(), "stale") {
		t.Errorf("east's call to an app that only west has: %v; want a refusal that says why", err)
	}
	x.want(took <= allowed(time.Second), "the refusal took %s", round(took))
	explained, _ := m.east.isthmus(meshtest.Within(t, meshtest.Patience), "", "explain", "--from", namespace+"/orders", "billing")
	t.Logf("the refusal took %s: %v\nisthmus explain in east:\n%s", round(took), err, explained)
	f := x.done("500 ms; each side says so", fmt.Sprintf("east says of west: %s; west says of east: %s, and that it hears us: %s", here.State, there.State, there.Hears))
	x.shorter(f, silenceGap)
}
