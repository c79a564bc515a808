package main

import (
	"testing"
)

// TestRecords counts TLS records however they are cut.
func TestRecords(t *testing.T) {
	var stream []byte
	for _, size := range []int{0, 1, 17, 300, 16384} {
		stream = append(stream, 23, 3, 3, byte(size>>8), byte(size))
		stream = append(stream, make([]byte, size)...)
	}
	for cut := 1; cut < 400; cut++ {
		var c counter
		var r records
		for rest := stream; len(rest) > 0; rest = rest[min(cut, len(rest)):] {
			r.note(&c, rest[:min(cut, len(rest))])
		}
		if got, want := c.load(), (count{int64(len(stream)), 5}); got != want {
			t.Fatalf("in pieces of %d: %+v, want %+v", cut, got, want)
		}
	}
}

// TestWorkedOut goes on in a straight line, past columns that are about something else.
func TestWorkedOut(t *testing.T) {
	all := []*result{
		{size: size{Peers: 2}, connections: 9}, {size: size{Peers: 100}, connections: 400},
		{size: size{Peers: 10}, connections: 40}, {size: size{Peers: 200, Others: 1}},
	}
	small, large := line(all)
	if small != all[2] || large != all[1] {
		t.Fatalf("from %v to %v", small.size, large.size)
	}
	f := figure{name: "connections", grows: true, of: func(r *result) float64 { return float64(r.connections) }}
	if row := f.row(all, small, large); row[len(row)-1] != "4000" {
		t.Errorf("%q, want 4000 at the end", row)
	}
	if small, large := line(all[:1]); small != nil || large != nil {
		t.Error("a line from one point")
	}
}
