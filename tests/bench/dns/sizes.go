package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/transport"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/zone"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// size is what a zone of so many names costs.
type size struct {
	Ready    time.Duration // from the first change until every name can be asked for
	Work     time.Duration // CPU time of that, on all cores, the collector's included
	First    time.Duration // the first answer then
	Each     time.Duration // an answer to each name in turn, the first time
	Again    time.Duration // the second time
	Memory   measure.Memory
	Asked    measure.Memory // once every name was asked for
	P50, P99 time.Duration  // from an instance's change to an answer with it
	Bytes    uint64         // allocated for a change
}

// sizes shows what the size of the zone costs.
func sizes(ctx context.Context, most int) error {
	table := measure.Table{
		Title: "Isthmus by the number of names, in process",
		Head:  []string{"names", "ready ms", "CPU ms", "first answer µs", "answer µs", "again µs", "heap B/name", "asked, B/name", "RSS MiB", "change p50 µs", "p99 µs", "allocated B"},
	}
	for names := 1000; names <= most; names *= 10 {
		measure.Progress("%d names", names)
		r, err := measure.Separately[size](ctx, "zone", names)
		if err != nil {
			return err
		}
		each := func(m measure.Memory) string { return strconv.FormatUint(m.Heap/uint64(names), 10) }
		table.Add(strconv.Itoa(names), measure.Millis(r.Ready), measure.Millis(r.Work), measure.Micros(r.First),
			fmt.Sprintf("%.2f", micros(r.Each)), fmt.Sprintf("%.2f", micros(r.Again)),
			each(r.Memory), each(r.Asked), measure.MiB(r.Asked.RSS),
			measure.Micros(r.P50), measure.Micros(r.P99), strconv.FormatUint(r.Bytes, 10))
	}
	if most > 0 {
		table.Print(os.Stdout)
	}
	return nil
}

// measureZone measures one size.
func measureZone(ctx context.Context, names int) (size, error) {
	ctx, stop := context.WithCancel(ctx)
	log := slog.New(slog.DiscardHandler)
	t := topology.New(topology.Config{Cluster: cluster, Domain: catalog.DefaultDomain, Open: true}, log)
	z := zone.New(zone.Config{Cluster: cluster, Domain: catalog.DefaultDomain}, t, log)
	var owners sync.WaitGroup
	owners.Go(func() { _ = t.Run(ctx) }) // both end with ctx, without an error
	owners.Go(func() { _ = z.Run(ctx) })
	defer owners.Wait()
	defer stop()
	return measureSize(ctx, t, z, names)
}

const source = "bench"

func measureSize(ctx context.Context, t *topology.Topology, z *zone.Zone, names int) (r size, err error) {
	change := topology.Change{
		Objects:   &topology.ObjectChange{Full: true},
		Instances: []topology.InstanceChange{{Source: source}},
	}
	for i := range names {
		change.Instances[0].Put = append(change.Instances[0].Put, instance(i))
	}
	used, began := measure.OwnCPU(), time.Now()
	if _, err := t.Apply(ctx, change); err != nil {
		return r, err
	}
	r.Ready, r.Work = time.Since(began), measure.OwnCPU()-used
	change = topology.Change{}

	ask := &questions{zone: z, names: names, query: transport.Query{As: asker}, room: make([]byte, 0, 1<<16)}
	began = time.Now()
	if !ask.holds(names-1, address(names-1).Addr().AsSlice()) {
		return r, errors.New("the last name does not have its address")
	}
	r.First = time.Since(began)
	r.Memory = measure.Settled()
	if r.Each, err = ask.all(); err != nil {
		return r, err
	}
	if r.Again, err = ask.all(); err != nil {
		return r, err
	}
	r.Asked = measure.Settled()
	return r, ask.changes(ctx, t, &r)
}

// questions asks a zone, with one name of all in one query.
type questions struct {
	zone  *zone.Zone
	names int
	query transport.Query
	room  []byte
}

// ask asks for the i-th app's address, and returns the response.
func (q *questions) ask(i int) []byte {
	q.query.Packet = appendQuestion(q.query.Packet[:0], i)
	response, _ := q.zone.Answer(&q.query, q.room)
	return response
}

// appendQuestion packs the query for the i-th app's address.
func appendQuestion(packet []byte, i int) []byte {
	packet = append(packet, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0)
	start := len(packet)
	packet = append(packet, 0)
	packet = fmt.Appendf(packet, "app-%05d", i)
	packet[start] = byte(len(packet) - start - 1)
	return append(packet, "\x04shop\x07isthmus\x08internal\x00\x00\x01\x00\x01"...)
}

// holds tells whether the i-th app's answer ends with an address.
func (q *questions) holds(i int, address []byte) bool {
	m := q.ask(i)
	return len(m) > len(address) && m[7] == 1 && string(m[len(m)-len(address):]) == string(address)
}

// all asks for every name, and returns how long one answer took.
func (q *questions) all() (time.Duration, error) {
	began := time.Now()
	for i := range q.names {
		if m := q.ask(i); len(m) < 12 || m[3]&0xf != dns.RcodeSuccess || m[7] != 1 {
			return 0, fmt.Errorf("%s has no address: %x", name(i), m)
		}
	}
	return time.Since(began) / time.Duration(q.names), nil
}

// So many changes are measured.
const changes = 1000

// changes has instances leave and come back, and looks at the answer each time.
func (q *questions) changes(ctx context.Context, t *topology.Topology, r *size) error {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	took := make([]time.Duration, 0, changes)
	for n := range changes {
		i := n / 2 * 37 % q.names
		put := instance(i)
		put.Draining = n%2 == 0
		began := time.Now()
		if _, err := t.Apply(ctx, topology.Change{Instances: []topology.InstanceChange{{Source: source, Put: []catalog.Instance{put}}}}); err != nil {
			return err
		}
		if q.holds(i, put.Address.Addr().AsSlice()) == put.Draining {
			return fmt.Errorf("change %d of %s does not show in its answer", n, name(i))
		}
		took = append(took, time.Since(began))
	}
	runtime.ReadMemStats(&after)
	r.P50, r.P99 = measure.Median(took), measure.Quantile(took, .99)
	r.Bytes = (after.TotalAlloc - before.TotalAlloc) / changes
	return nil
}
