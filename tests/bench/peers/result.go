package main

import (
	"fmt"
	"slices"
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
	name string
	of   func(*result) string
}

// figures are the table's rows.
func figures() []figure {
	return []figure{
		{"exports to us", func(r *result) string { return fmt.Sprint(r.size.Peers * exports) }},
		{"exports to somebody else, 100 changes of these a second at rest", func(r *result) string { return fmt.Sprint(r.size.Peers * r.size.Others) }},
		{"connections for each peer, both ways", func(r *result) string { return fmt.Sprintf("%.1f", float64(r.connections)/float64(r.size.Peers)) }},
		{"**memory** RSS MiB without peers", func(r *result) string { return measure.MiB(r.alone.RSS) }},
		{"RSS MiB with all peers", func(r *result) string { return measure.MiB(r.linked.RSS) }},
		{"heap MiB", func(r *result) string { return measure.MiB(r.linked.Heap) }},
		{"heap bytes for each export that we are told", func(r *result) string { return r.each(r.asked.Heap, r.linked.Heap) }},
		{"heap bytes for each export that we tell a peer", func(r *result) string { return r.each(r.alone.Heap, r.asked.Heap) }},
		{"**at rest** CPU %", func(r *result) string { return fmt.Sprintf("%.2f", 100*r.restCPU) }},
		{"B/s received, for each peer", func(r *result) string { return r.perPeer(r.restIn.Bytes) }},
		{"B/s sent, for each peer", func(r *result) string { return r.perPeer(r.restOut.Bytes) }},
		{"TLS records/s received, for each peer", func(r *result) string { return r.perPeer(r.restIn.Records) }},
		{"TLS records/s sent, for each peer", func(r *result) string { return r.perPeer(r.restOut.Records) }},
		{"**a change there** → decision in a view, p50 ms", func(r *result) string { return millis(r.decided, .5) }},
		{"p99 ms", func(r *result) string { return millis(r.decided, .99) }},
		{"→ decision in a sidecar, p50 ms", func(r *result) string { return millis(r.resolved, .5) }},
		{"p99 ms", func(r *result) string { return millis(r.resolved, .99) }},
		{"CPU ms", func(r *result) string { return measure.Millis(r.changeCPU) }},
		{"**a change here**, told to all peers: CPU ms", func(r *result) string { return measure.Millis(r.ownCPU) }},
		{"B sent", func(r *result) string { return fmt.Sprint(r.ownOut) }},
		{"**a start**: all peers but one heard after ms", func(r *result) string { return measure.Millis(r.startTook) }},
		{"CPU ms", func(r *result) string { return measure.Millis(r.startCPU) }},
		{"**a first connection** to one more: its exports known after ms", func(r *result) string { return measure.Millis(r.firstTook) }},
		{"CPU ms", func(r *result) string { return measure.Millis(r.firstCPU) }},
		{"KiB received", func(r *result) string { return kib(r.firstIn.Bytes) }},
		{"KiB sent", func(r *result) string { return kib(r.firstOut.Bytes) }},
		{"**a reconnect** of one peer, both ways: p50 ms", func(r *result) string { return millis(r.reTook, .5) }},
		{"KiB received", func(r *result) string { return kib(r.reIn / int64(len(r.reTook))) }},
		{"KiB sent", func(r *result) string { return kib(r.reOut / int64(len(r.reTook))) }},
		{"CPU ms here", func(r *result) string { return measure.Millis(r.reCPU / time.Duration(len(r.reTook))) }},
		{"CPU ms there, and of all other peers meanwhile", func(r *result) string { return measure.Millis(r.rePeersCPU / time.Duration(len(r.reTook))) }},
		{"exports sent again", func(r *result) string { return fmt.Sprint(r.again0) }},
		{"exports sent, where one has changed", func(r *result) string { return fmt.Sprint(r.againChanged) }},
		{fmt.Sprintf("**a cluster goes**, refusing connections: its %d routes withdrawn after ms", exports), func(r *result) string { return measure.Millis(r.gone) }},
		{"after the first of them, ms", func(r *result) string { return measure.Millis(r.goneSpread) }},
		{"CPU ms", func(r *result) string { return measure.Millis(r.goneCPU) }},
		{"**it comes back**: all routes there after ms", func(r *result) string { return measure.Millis(r.back) }},
		{"after the first of them, ms", func(r *result) string { return measure.Millis(r.backSpread) }},
		{"CPU ms, until its ramp is over", func(r *result) string { return measure.Millis(r.backCPU) }},
	}
}

// each is how many bytes more there are for each export.
func (r *result) each(before, after uint64) string {
	return fmt.Sprintf("%.0f", (float64(after)-float64(before))/float64(r.size.Peers*exports))
}

// perPeer is how many there were of something at rest, a second and for each peer.
func (r *result) perPeer(n int64) string {
	return fmt.Sprintf("%.1f", float64(n)/r.restTook.Seconds()/float64(r.size.Peers))
}

func millis(values []time.Duration, q float64) string {
	return fmt.Sprintf("%.1f", float64(measure.Quantile(slices.Clone(values), q))/1e6)
}

func kib(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/(1<<10)) }
