package main

import (
	"errors"
	"regexp"
	"testing"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
)

func TestObjectsAreGoodAndDiffer(t *testing.T) {
	all := objects(2000)
	if len(all) != 2000 {
		t.Errorf("%d objects, want 2000", len(all))
	}
	seen := map[catalog.Key]bool{}
	for _, object := range append(all, selection(true)) {
		if _, err := api.DecodeJSON(api.KeyPath(object.Key()), api.EncodeJSON(object)); err != nil {
			t.Error(err)
		}
		seen[object.Key()] = true
	}
	if len(seen) != len(all) {
		t.Errorf("%d keys for %d objects; the caller's selection must be among them", len(seen), len(all))
	}
	for _, on := range []bool{false, true} {
		if holds(api.EncodeJSON(selection(on))) != on || holds(api.EncodeYAML(selection(on))) != on {
			t.Errorf("a selection that holds the callee, %v, is taken for the other", on)
		}
	}
}

// As ss of iproute2 6.1 prints it.
const ssText = `0 0 127.0.0.1:56060 127.0.0.1:28500 users:(("isthmus",pid=41,fd=9)) cubic rto:204 bytes_sent:1068 bytes_acked:1068 bytes_received:2208 segs_out:25 segs_in:24 data_segs_out:12 data_segs_in:12 send 4Gbps
0 0 127.0.0.1:56062 127.0.0.1:28500 users:(("isthmus",pid=41,fd=11)) cubic bytes_sent:10 bytes_received:20 data_segs_out:1 data_segs_in:1
0 0 127.0.0.1:56064 127.0.0.1:28500 users:(("stores",pid=410,fd=12)) cubic bytes_sent:99 bytes_received:99 data_segs_out:9
`

func TestTrafficOfAProcess(t *testing.T) {
	before := count{connections: parseConnections(ssText, 41)}
	if len(before.connections) != 2 {
		t.Fatalf("%d connections, want the two of process 41: %v", len(before.connections), before.connections)
	}
	now := count{connections: map[string]traffic{
		"127.0.0.1:56060": {sends: 14, sent: 1100, received: 2300},
		"127.0.0.1:56070": {sends: 1, sent: 5, received: 6}, // new since
	}}
	if got, want := now.since(before), (traffic{sends: 3, sent: 37, received: 98}); got != want {
		t.Errorf("since then %+v, want %+v", got, want)
	}
}

func TestCountersAreAddedUp(t *testing.T) {
	c := counter{series: regexp.MustCompile(`^requests\{group="ours"[^}]*\}`)}
	const text = "# TYPE requests counter\nrequests{group=\"ours\",verb=\"LIST\"} 3\nrequests{group=\"ours\",verb=\"WATCH\"} 1.2e+01\nrequests{group=\"theirs\"} 100\n"
	if sum, err := c.sum(text); err != nil || sum != 15 {
		t.Errorf("%d, %v; want 15", sum, err)
	}
	if _, err := c.sum("requests{group=\"theirs\"} 100\n"); !errors.Is(err, errNoCounter) {
		t.Errorf("where there is no counter: %v", err)
	}
}
