package identity_test

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

// Every change of the trust in a cluster, for open and new connections, by either side. A cluster
// that was removed is out at once, also where its root is this one's.
func TestAChangeOfTrustCountsAtOnce(t *testing.T) {
	shared, own, other := identitytest.NewCA(t), identitytest.NewCA(t), identitytest.NewCA(t)
	type said map[string]catalog.Trust
	east := func(domain string, roots ...*identitytest.CA) said {
		var text string
		for _, ca := range roots {
			text += string(ca.PEM())
		}
		return said{"east": {Domain: domain, Roots: text}}
	}
	with := func(all said, cluster string) said {
		all[cluster] = catalog.Trust{}
		return all
	}
	for what, c := range map[string]struct {
		by            *identitytest.CA // of east; west is of shared
		before, after said
		namespace     string
		stays         bool
	}{
		"one root: removed":                    {by: shared, before: east(""), after: said{}},
		"one root: removed beside another":     {by: shared, before: with(east(""), "north"), after: said{"north": {}}},
		"one root: another comes":              {by: shared, before: east(""), after: with(east(""), "north"), stays: true},
		"one root: another is removed":         {by: shared, before: with(east(""), "north"), after: east(""), stays: true},
		"one root: gateways alone":             {by: shared, before: east(""), after: east(""), stays: true},
		"one root: its domain is named":        {by: shared, before: east(""), after: east("east.example"), stays: true},
		"one root: another domain is named":    {by: shared, before: east(""), after: east("else.example")},
		"one root: with a domain, removed":     {by: shared, before: east("east.example"), after: said{}},
		"one root: with a domain, spec is {}":  {by: shared, before: east("east.example"), after: east(""), stays: true},
		"one root: it is named":                {by: shared, before: east(""), after: east("", shared), stays: true},
		"one root: named, removed":             {by: shared, before: east("", shared), after: said{}},
		"one root: another root is named":      {by: shared, before: east(""), after: east("", other)},
		"one root: what is named is no root":   {by: shared, before: east(""), after: said{"east": {Roots: "hello"}}},
		"one root: another namespace":          {by: shared, before: east(""), after: east(""), namespace: "mesh"},
		"own roots: removed":                   {by: own, before: east("east.example", own), after: said{}},
		"own roots: removed, without a domain": {by: own, before: east("", own), after: said{}},
		"own roots: spec is {}":                {by: own, before: east("east.example", own), after: east("")},
		"own roots: the domain alone is left":  {by: own, before: east("east.example", own), after: east("east.example")},
		"own roots: another domain":            {by: own, before: east("east.example", own), after: east("else.example", own)},
		"own roots: no domain any more":        {by: own, before: east("east.example", own), after: east("", own), stays: true},
		"own roots: gateways alone":            {by: own, before: east("east.example", own), after: east("east.example", own), stays: true},
		"own roots: one root more":             {by: own, before: east("", own), after: east("", own, other), stays: true},
		"own roots: another root":              {by: own, before: east("", own), after: east("", other)},
	} {
		for _, side := range []string{"asking", "asked"} {
			t.Run(what+", "+side, func(t *testing.T) {
				west := newPlace(t, shared, "west", "west.example")
				far := newPlace(t, c.by, "east", "east.example")
				far.knows(west)
				connect := func() (*stream, error) {
					if side == "asked" {
						return open(t, west.address, far.PeerCredentials("west"))
					}
					return open(t, far.address, west.PeerCredentials("east"))
				}
				west.SetPeers("", c.before)
				before, err := connect()
				if err != nil {
					t.Fatal(err)
				}
				west.SetPeers(c.namespace, c.after)
				if n := west.OpenConnections(); (n == 1) != c.stays {
					t.Errorf("%d connections are open", n)
				}
				if !c.stays {
					before.ends(t)
				}
				if _, err := connect(); (err == nil) != c.stays {
					t.Errorf("a new connection: %v", err)
				}
			})
		}
	}
}
