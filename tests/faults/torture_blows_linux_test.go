package faults

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// blow is a fault that can be made at any time, and is mended by what making it returns.
type blow struct {
	name    string
	on      string // two on the same are never made at a time
	between bool   // it is between who writes an object and callers of west
	strike  func() (mend func() error, err error)
}

// planned is a blow with its time since the begin of the round.
type planned struct {
	blow
	begins, ends time.Duration
}

// restarts is how long a process takes to be there again, after which another blow may be on it.
const restarts = 5 * time.Second

// allBlows are those of processes, of links and of objects.
func (o *ordeal) allBlows() [][]blow {
	var processes, links, objects []blow
	for _, c := range o.clusters() {
		processes = append(processes, c.blows(o)...)
		for _, other := range o.clusters() {
			if other != c {
				links = append(links, o.between(c, other)...)
			}
		}
	}
	for _, r := range o.registers {
		for _, value := range r.others {
			objects = append(objects, blow{fmt.Sprintf("%s is %s", r, value), r.String(), false, func() (func() error, error) {
				return func() error { return r.set(r.usual) }, r.set(value)
			}})
		}
	}
	return [][]blow{processes, links, objects}
}

// blows are those on the processes of a cluster: killed, and stopped for a while.
func (c *cluster) blows(o *ordeal) (all []blow) {
	on := func(name string, kill func() error, start func() error, pid func() int) {
		all = append(all, blow{name + ": kill -9", name, c == o.west, func() (func() error, error) { return start, kill() }},
			blow{name + ": SIGSTOP", name, c == o.west, func() (func() error, error) {
				return func() error { return syscall.Kill(pid(), syscall.SIGCONT) }, syscall.Kill(pid(), syscall.SIGSTOP)
			}})
	}
	processes := c.processes()[:1+len(c.services)]
	for _, s := range c.sidecarsByName() {
		processes = append(processes, s.Process)
	}
	for _, p := range processes {
		on(p.Name(), p.Kill, func() error { return p.Restart(meshtest.Within(o.t, meshtest.Patience)) }, p.PID)
	}
	for i, s := range c.servers() {
		name := []string{"etcd of " + c.name, "store of " + c.name}[i]
		on(name, s.Kill, func() error { return s.Start(meshtest.Within(o.t, meshtest.Patience)) }, s.PID)
	}
	return all
}

// between are blows on the way from one cluster to another.
func (o *ordeal) between(from, to *cluster) []blow {
	way := func(what string, c network.Conditions, targets ...netip.Prefix) blow {
		name := fmt.Sprintf("from %s to %s: %s", from.name, to.name, what)
		return blow{name, from.name + to.name, false, func() (func() error, error) {
			set := func(c network.Conditions) {
				for _, target := range targets {
					o.Set(from.network, target, c)
				}
			}
			set(c)
			return func() error { set(network.Conditions{}); return nil }, nil
		}}
	}
	both := way("cut in both directions", network.Conditions{Drop: true}, to.network)
	one := both.strike
	both.strike = func() (func() error, error) {
		o.cut(to.network, from.network)
		mend, err := one()
		return func() error { o.Set(to.network, from.network, network.Conditions{}); return mend() }, err
	}
	return []blow{
		both,
		way("cut in one direction", network.Conditions{Drop: true}, to.network),
		way("one gateway address cut", network.Conditions{Drop: true}, only(to.gateways[0])),
		way("300 ms later", network.Conditions{Delay: 300 * time.Millisecond}, to.network),
		way("5 % lost", network.Conditions{Loss: 0.05}, to.network),
		way("100 ms later, 20 % lost", network.Conditions{Delay: 100 * time.Millisecond, Loss: 0.2}, to.network),
	}
}

// register is an object with one writer, which has another mark at each write, so that it is seen
// which write it has.
type register struct {
	o          *ordeal
	c          *cluster
	kind, name string
	usual      string // the value without a fault
	others     []string
	text       func(value string, mark int) string // the object

	mu     sync.Mutex
	marks  int
	writes []attempt
}

// attempt is one to write a value. What was not acknowledged may hold, too.
type attempt struct {
	value, mark  string
	begun, acked time.Time
}

const gone = "deleted"

func (r *register) String() string { return r.kind + " " + r.name + " in " + r.c.name }

// objects are those that faults are about: what cart selects, what east and north export of
// orders, and whether west knows east.
func (o *ordeal) objects() []*register {
	exported := func(_ string, mark int) string {
		return export("orders") + fmt.Sprintf("  - {cluster: west, namespace: mark-%d}\n", mark)
	}
	return []*register{
		{o: o, c: o.west, kind: "AppEndpoints", name: namespace + "/cart", usual: "east north", others: []string{"east", "north", "north east", "without orders"},
			text: func(value string, mark int) string {
				chosen := []string{"stock: local north", "orders: " + value}
				if value == "without orders" {
					chosen = chosen[:1]
				}
				return regexp.MustCompile(`priority: \d`).ReplaceAllString(selection("cart", chosen...), fmt.Sprintf("$0, weight: %d", 1+mark))
			}},
		{o: o, c: o.east, kind: "AppExport", name: namespace + "/orders", usual: "there", others: []string{gone}, text: exported},
		{o: o, c: o.north, kind: "AppExport", name: namespace + "/orders", usual: "there", others: []string{gone}, text: exported},
		{o: o, c: o.west, kind: "Cluster", name: "east", usual: "there", others: []string{gone},
			text: func(_ string, mark int) string {
				return clusterObject(o.east, staleAfter()+time.Duration(mark)*time.Millisecond)
			}},
	}
}

// set writes a value until that is acknowledged, by one replica after the other.
func (r *register) set(value string) error {
	var errs []error
	for begun := time.Now(); time.Since(begun) < meshtest.Patience; time.Sleep(200 * time.Millisecond) {
		r.mu.Lock()
		r.marks++
		w := attempt{value: value, mark: fmt.Sprint(r.marks), begun: time.Now()}
		service := r.c.services[r.marks%len(r.c.services)].Resolver
		stdin, args := r.text(value, r.marks), []string{"apply", "-f", "-", "--server", service}
		if value == gone {
			stdin, args = "", []string{"delete", r.kind, r.name, "--server", service}
		}
		r.writes = append(r.writes, w)
		last := &r.writes[len(r.writes)-1]
		r.mu.Unlock()
		_, err := r.c.isthmus(meshtest.Within(r.o.t, meshtest.Attempt), stdin, args...)
		if value == gone && err != nil && strings.Contains(err.Error(), "not found") && len(errs) > 0 {
			err = nil // a try before, whose end was not heard
		}
		if err == nil {
			r.mu.Lock()
			last.acked = time.Now()
			r.mu.Unlock()
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("%s was not written: %w", r, errors.Join(errs...))
}

// possible are the values that callers may go by in some moment of a time: each since it was
// begun, until the one after it was acknowledged and came into force.
func (r *register) possible(from, to time.Time) (values []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, w := range r.writes {
		next := slices.IndexFunc(r.writes[i+1:], func(later attempt) bool { return !later.acked.IsZero() })
		if w.begun.Before(to) && (next < 0 || r.o.inForce(r.c, r.writes[i+1+next].acked).After(from)) {
			values = append(values, w.value)
		}
	}
	return values
}

// inForce is when no call goes by what was before a write any more. Exports are asked at the
// gateway that their owner has. What a caller's own cluster says reaches it once nothing between is at fault.
func (o *ordeal) inForce(c *cluster, acked time.Time) time.Time {
	end := acked.Add(onceInForce)
	for c == o.west {
		longer := slices.IndexFunc(o.spent, func(s span) bool { return s.from.Before(end) && s.to.Add(onceInForce).After(end) })
		if longer < 0 {
			break
		}
		end = o.spent[longer].to.Add(onceInForce)
	}
	return end
}

// has checks that the store has the last write, and that is acknowledged.
func (r *register) check() error {
	text, err := r.c.isthmus(meshtest.Within(r.o.t, meshtest.Attempt), "", "get", r.kind, r.name, "-o", "json")
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.writes[len(r.writes)-1]
	want := map[string]string{"AppEndpoints": `"weight": ` + fmt.Sprint(1+r.marks), "AppExport": `"mark-` + last.mark + `"`, "Cluster": fmt.Sprintf(`"%s"`, staleAfter()+time.Duration(r.marks)*time.Millisecond)}[r.kind]
	if err == nil && !strings.Contains(text, want) {
		err = fmt.Errorf("%s lacks %s, which was acknowledged at %s:\n%s", r, want, last.acked.Format("15:04:05.000"), text)
	}
	return err
}
