package demo

import (
	"testing"
	"time"
)

func TestTreeShowsWhoCalledWhom(t *testing.T) {
	t0 := time.Unix(0, 0)
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	got := tree([]span{
		{id: "c", parent: "b", name: "orders/hello", service: "orders", cluster: "east", start: at(3), end: at(5)},
		{id: "a", parent: "outside", name: "POST /hello", service: "checkout", cluster: "west", start: at(0), end: at(9)},
		{id: "d", parent: "a", name: "isthmus.lookup", service: "checkout", cluster: "west", start: at(1), end: at(1), notes: []string{"isthmus.outcome=ok"}},
		{id: "b", parent: "a", name: "CallLocal", service: "checkout", cluster: "west", start: at(2), end: at(6)},
	})
	want := "" +
		"west   checkout  POST /hello  (9ms)\n" +
		"├─ west   checkout  isthmus.lookup  (0s)\n" +
		"│            isthmus.outcome=ok\n" +
		"└─ west   checkout  CallLocal  (4ms)\n" +
		"   └─ east   orders  orders/hello  (2ms)\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
