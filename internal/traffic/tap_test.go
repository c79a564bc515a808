package traffic_test

import (
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

// TestATapIsBounded has more calls than anybody wants, and than have room before they are taken.
func TestATapIsBounded(t *testing.T) {
	var none *traffic.Tap
	none.Add(traffic.Call{})
	var tap traffic.Tap
	begin := time.Unix(1000, 0)
	tap.Add(traffic.Call{At: begin})
	if calls, left := tap.Take(); tap.On() || len(calls)+int(left) > 0 {
		t.Errorf("nobody wants calls, and %d are kept, %d left out", len(calls), left)
	}
	all := func(*traffic.Call) bool { return true }
	first := tap.Set(20, all)
	for i := range 300 {
		tap.Add(traffic.Call{At: begin.Add(time.Duration(i) * 10 * time.Millisecond)})
	}
	if calls, left := tap.Take(); len(calls) != 60 || left != 240 {
		t.Errorf("of 100 calls a second for 3 s %d are kept and %d left out, want 20 a second", len(calls), left)
	}
	second := tap.Set(1<<30, all)
	first() // whose time is over
	for i := range 100_000 {
		tap.Add(traffic.Call{At: begin.Add(time.Duration(i) * time.Millisecond)})
	}
	if calls, left := tap.Take(); !tap.On() || len(calls) != 2*traffic.MaxTapped || int(left) != 100_000-len(calls) {
		t.Errorf("%d are kept and %d left out, on: %v", len(calls), left, tap.On())
	}
	tap.Set(10, func(c *traffic.Call) bool { return c.Cluster == "east" }) // others take no room
	for i := range 100 {
		tap.Add(traffic.Call{At: begin.Add(time.Hour), Cluster: map[bool]string{true: "east", false: "west"}[i == 99]})
	}
	if calls, left := tap.Take(); len(calls) != 1 || left != 0 {
		t.Errorf("of one that is wanted %d are kept and %d left out", len(calls), left)
	}
	second()
	if tap.Set(1, all)(); tap.On() {
		t.Error("it is on at its end")
	}
}
