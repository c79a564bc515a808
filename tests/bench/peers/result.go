package main

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// result is what was measured at one size. In and out are as the service sees them.
type result struct {
	size size

	alone, asked, linked measure.Memory // without peers; with peers that ask; with links to them

	startTook, startCPU time.Duration // links to all but one peer at once
	connections         int           // of all links, both ways

	firstTook, firstCPU time.Duration // a link to one more
	firstIn, firstOut   count

	restTook        time.Duration
	restIn, restOut count // of all peers
	restCPU         float64

	decided, resolved []time.Duration // of each change of the others: in a view, and in a sidecar
	changeCPU         time.Duration   // of each
	ownCPU            time.Duration   // of each change of the service's own apps
	ownOut            int64           // bytes, for each

	reTook            []time.Duration // of each reconnect
	reIn, reOut       int64           // bytes of all
	reCPU, rePeersCPU time.Duration   // of all
	again0            int64           // exports sent again by either side, in all of them
	againChanged      int64           // exports sent when one has changed
	gone, back        time.Duration   // until the last route was
	goneSpread        time.Duration   // since the first was
	backSpread        time.Duration
	goneCPU, backCPU  time.Duration
}

// figure is a row of the table.
type figure struct {
	name   string
	digits int  // after the point
	grows  bool // with the number of peers, in a straight line
	of     func(*result) float64
}

// The units of figures, as parts of what is counted.
const (
	milli = float64(time.Millisecond)
	kib   = float64(1 << 10)
	mib   = float64(1 << 20)
)

// figures are the table's rows.
func figures() []figure {
	return []figure{
		{"exports to us", 0, true, func(r *result) float64 { return float64(r.size.Peers * exports) }},
		{"exports to somebody else, 100 changes of these a second at rest", 0, false, func(r *result) float64 { return float64(r.size.Peers * r.size.Others) }},
		{"connections, both ways", 0, true, func(r *result) float64 { return float64(r.connections) }},
		{"**memory**: RSS MiB without peers", 1, false, func(r *result) float64 { return float64(r.alone.RSS) / mib }},
		{"RSS MiB with all peers", 1, true, func(r *result) float64 { return float64(r.linked.RSS) / mib }},
		{"heap MiB", 1, true, func(r *result) float64 { return float64(r.linked.Heap) / mib }},
		{"heap B for each export that we are told", 0, false, func(r *result) float64 { return r.each(r.asked.Heap, r.linked.Heap) }},
		{"heap B for each export that we tell a peer", 0, false, func(r *result) float64 { return r.each(r.alone.Heap, r.asked.Heap) }},
		{"**at rest**: CPU % of a core", 2, true, func(r *result) float64 { return 100 * r.restCPU }},
		{"B/s received, for each peer", 1, false, func(r *result) float64 { return r.perPeer(r.restIn.Bytes) }},
		{"B/s sent, for each peer", 1, false, func(r *result) float64 { return r.perPeer(r.restOut.Bytes) }},
		{"TLS records/s received, for each peer", 1, false, func(r *result) float64 { return r.perPeer(r.restIn.Records) }},
		{"TLS records/s sent, for each peer", 1, false, func(r *result) float64 { return r.perPeer(r.restOut.Records) }},
		{"**a change there** → decision in a view, p50 ms", 1, false, func(r *result) float64 { return millis(r.decided, .5) }},
		{"the same, p99 ms", 1, false, func(r *result) float64 { return millis(r.decided, .99) }},
		{"→ decision in a sidecar, p50 ms", 1, false, func(r *result) float64 { return millis(r.resolved, .5) }},
		{"the same, p99 ms", 1, false, func(r *result) float64 { return millis(r.resolved, .99) }},
		{"CPU ms of it", 2, false, func(r *result) float64 { return float64(r.changeCPU) / milli }},
		{"**a change here**, told to all peers: CPU ms", 2, true, func(r *result) float64 { return float64(r.ownCPU) / milli }},
		{"B sent for it", 0, true, func(r *result) float64 { return float64(r.ownOut) }},
		{"**a start**: all peers but one heard after ms", 0, true, func(r *result) float64 { return float64(r.startTook) / milli }},
		{"CPU ms of it", 0, true, func(r *result) float64 { return float64(r.startCPU) / milli }},
		{"**a first connection** to one more: its exports known after ms", 0, false, func(r *result) float64 { return float64(r.firstTook) / milli }},
		{"CPU ms of it", 1, true, func(r *result) float64 { return float64(r.firstCPU) / milli }},
		{"KiB received for it", 1, false, func(r *result) float64 { return float64(r.firstIn.Bytes) / kib }},
		{"KiB sent for it", 1, false, func(r *result) float64 { return float64(r.firstOut.Bytes) / kib }},
		{"**a reconnect** of one peer, both ways: known again after ms, p50", 0, false, func(r *result) float64 { return millis(r.reTook, .5) }},
		{"KiB received for it", 1, false, func(r *result) float64 { return r.perReconnect(float64(r.reIn)) / kib }},
		{"KiB sent for it", 1, false, func(r *result) float64 { return r.perReconnect(float64(r.reOut)) / kib }},
		{"CPU ms of it, here", 1, false, func(r *result) float64 { return r.perReconnect(float64(r.reCPU)) / milli }},
		{"CPU ms there, and of all other peers meanwhile", 1, false, func(r *result) float64 { return r.perReconnect(float64(r.rePeersCPU)) / milli }},
		{"exports sent again, in all reconnects", 0, false, func(r *result) float64 { return float64(r.again0) }},
		{"exports sent, where one has changed meanwhile", 0, false, func(r *result) float64 { return float64(r.againChanged) }},
		{fmt.Sprintf("**a cluster goes**, refusing connections: its %d routes withdrawn after ms", exports), 0, false, func(r *result) float64 { return float64(r.gone) / milli }},
		{"the last after the first of them, ms", 2, false, func(r *result) float64 { return float64(r.goneSpread) / milli }},
		{"CPU ms of it, until 1 s later", 1, false, func(r *result) float64 { return float64(r.goneCPU) / milli }},
		{"**it comes back**: its routes there after ms", 0, false, func(r *result) float64 { return float64(r.back) / milli }},
		{"the last after the first of them, ms", 2, false, func(r *result) float64 { return float64(r.backSpread) / milli }},
		{"CPU ms of it, until its ramp is over", 1, false, func(r *result) float64 { return float64(r.backCPU) / milli }},
	}
}

func (f figure) text(value float64) string { return strconv.FormatFloat(value, 'f', f.digits, 64) }

// many is for how many peers figures are worked out.
const many = 1000

// row is a figure for each result, and for many peers where it grows: by going on in the
// straight line from a small number of peers to a large one.
func (f figure) row(all []*result, small, large *result) []string {
	row := []string{f.name}
	for _, r := range all {
		row = append(row, f.text(f.of(r)))
	}
	switch {
	case large == nil:
	case !f.grows:
		row = append(row, "")
	default:
		each := (f.of(large) - f.of(small)) / float64(large.size.Peers-small.size.Peers)
		row = append(row, f.text(f.of(large)+each*float64(many-large.size.Peers)))
	}
	return row
}

// line is where to go on from: the two results with the most peers, without any that have
// exports to others. They are nil where there are not two.
func line(all []*result) (small, large *result) {
	for _, r := range all {
		switch {
		case r.size.Others > 0:
		case large == nil || r.size.Peers > large.size.Peers:
			small, large = large, r
		case r.size.Peers < large.size.Peers && (small == nil || r.size.Peers > small.size.Peers):
			small = r
		}
	}
	if small == nil {
		return nil, nil
	}
	return small, large
}

// each is how many bytes more there are for each export.
func (r *result) each(before, after uint64) float64 {
	return (float64(after) - float64(before)) / float64(r.size.Peers*exports)
}

// perPeer is how many there were of something at rest, a second and for each peer.
func (r *result) perPeer(n int64) float64 {
	return float64(n) / r.restTook.Seconds() / float64(r.size.Peers)
}

// perReconnect is how much there was of something in each reconnect.
func (r *result) perReconnect(n float64) float64 { return n / float64(len(r.reTook)) }

func millis(values []time.Duration, q float64) float64 {
	return float64(measure.Quantile(slices.Clone(values), q)) / milli
}
