package faults

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// peer is what "isthmus status -o json" says of one.
type peer struct {
	Cluster, State, Error, Hears string
	Lapses                       int
	AskedBy                      int `json:"askedBy"`
}

// peer asks a cluster's service how it hears another.
func (m *lab) peer(t *testing.T, c *cluster, of string) peer {
	t.Helper()
	text, err := c.isthmus(meshtest.Within(t, meshtest.Patience), "", "status", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Peers []peer }
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("isthmus status: %v: %s", err, text)
	}
	for _, p := range answer.Peers {
		if p.Cluster == of {
			return p
		}
	}
	t.Fatalf("%s has no peer %s: %s", c.name, of, text)
	return peer{}
}

// lapses is how often a cluster's lease of another has run out.
func (m *lab) lapses(t *testing.T, c *cluster, of string) int {
	t.Helper()
	return m.peer(t, c, of).Lapses
}

// says waits until a cluster's service says of a peer what is wanted.
func (m *lab) says(t *testing.T, c *cluster, of, what string, is func(peer) bool) (p peer) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if p = m.peer(t, c, of); !is(p) {
			return fmt.Errorf("%s says of %s: %+v; want that %s", c.name, of, p, what)
		}
		return nil
	})
	return p
}
