package main

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/bench/fleet"
)

// The cluster that is measured: caller may call callee, or may not.
const cluster = "west"

var (
	caller = fleet.App(0)
	callee = fleet.App(3)
)

// endpoints is how many apps each selection has.
const endpoints = 3

// objects are so many objects: mostly selections of three apps each, a fifth exports,
// a thousandth clusters.
func objects(count int) []catalog.Object {
	clusters, exports := count/1000, count/5
	selections := fleet.Fleet{Apps: count - clusters - exports, Callees: endpoints}.Objects()
	all := slices.Clone(selections)
	all[0] = selection(false)
	for i := range exports {
		all = append(all, &catalog.AppExport{App: fleet.App(i), Allow: []catalog.Allow{{Cluster: "*", Namespace: fleet.Namespace}}})
	}
	for i := range clusters {
		// Nobody listens there: peers are not measured here.
		all = append(all, &catalog.Cluster{Name: fmt.Sprintf("peer-%d", i), Gateways: []string{fmt.Sprintf("127.0.0.1:%d", i+1)}})
	}
	return all
}

// selection is that of the caller, which holds the callee or not.
func selection(on bool) *catalog.AppEndpoints {
	last := callee
	if !on {
		last = fleet.App(4)
	}
	s := &catalog.AppEndpoints{App: caller}
	for _, app := range []catalog.App{fleet.App(1), fleet.App(2), last} {
		s.Endpoints = append(s.Endpoints, catalog.Endpoint{App: app})
	}
	return s
}

// holds tells from the bytes of the caller's selection whether it holds the callee.
func holds(value []byte) bool { return bytes.Contains(value, []byte(callee.ID)) }
