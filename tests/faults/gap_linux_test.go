package faults

import (
	"errors"
	"testing"
	"time"
)

// What is measured is what faults are held to, so it is held to this.
func TestTheLongestTimeWithoutAnAnswer(t *testing.T) {
	fault := time.Now()
	at := func(ms int) time.Time { return fault.Add(time.Duration(ms) * time.Millisecond) }
	answered := func(begun, ended int) call { return call{begun: at(begun), ended: at(ended)} }
	failed := func(begun, ended int) call {
		return call{begun: at(begun), ended: at(ended), err: errors.New("connection refused")}
	}
	for _, c := range []struct {
		what  string
		calls calls
		want  int // ms
	}{
		{"between two answers", calls{answered(-20, -10), answered(0, 10), answered(20, 90), answered(95, 100)}, 80},
		{"before the fault it does not count", calls{answered(-900, -890), answered(-20, -10), answered(0, 10), answered(20, 25)}, 20},
		{"over the fault it does", calls{answered(-300, -290), answered(0, 10), answered(20, 25)}, 300},
		{"a call that failed is no answer", calls{answered(-20, -10), failed(0, 10), failed(20, 30), answered(40, 50)}, 50},
		{"until the end of all calls where none is answered any more", calls{answered(-20, -10), failed(0, 100), failed(500, 510)}, 510},
		{"which is not that of one which takes long to fail", calls{answered(0, 10), answered(20, 30), answered(40, 50), failed(0, 3000)}, 20},
		{"nor of one that is answered late", calls{answered(0, 10), answered(20, 30), answered(40, 50), answered(0, 3000)}, 20},
		{"none without a call", nil, 0},
	} {
		if got, _ := c.calls.gap(fault); got != time.Duration(c.want)*time.Millisecond {
			t.Errorf("%s: %s, want %d ms", c.what, got, c.want)
		}
	}
}
