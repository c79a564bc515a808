package clusters

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// wire is what went from one cluster to another.
type wire struct {
	mu      sync.Mutex
	ways    map[string]int // connections that began, by what they are of
	bytes   int
	secrets map[string][]byte
	found   map[string]bool // of the secrets
}

// watch looks at all that goes between the clusters. What their operators do at their desk is not that.
func (m *mesh) watch(t *testing.T) *wire {
	t.Helper()
	w := &wire{ways: map[string]int{}, secrets: map[string][]byte{}, found: map[string]bool{}}
	at := map[netip.Addr]*cluster{}
	for _, c := range m.all() {
		at[c.at], at[c.balancer] = c, c
		maps.Copy(w.secrets, c.credentials(t))
	}
	m.network.Watch(func(source, target netip.Addr, packet []byte) {
		if from, to := at[source], at[target]; from != nil && to != nil && from != to {
			w.see(packet)
		}
	})
	return w
}

func (w *wire) see(packet []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes += len(packet)
	const tcp, syn, ack = 6, 1 << 1, 1 << 4
	header := int(packet[0]&15) * 4
	switch {
	case packet[9] != tcp || len(packet) < header+20:
		w.ways[fmt.Sprintf("protocol %d", packet[9])]++
	case packet[header+13]&(syn|ack) == syn:
		w.ways[fmt.Sprintf("TCP %d", int(packet[header+2])<<8|int(packet[header+3]))]++
	}
	for name, secret := range w.secrets {
		if bytes.Contains(packet, secret) {
			w.found[name] = true
		}
	}
}

// credentials are those that the API server of a cluster takes, or signs others with.
func (c *cluster) credentials(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, u := range users {
		all["the token of "+u.Name+" in "+c.name] = []byte(c.token(u.Name))
	}
	for _, file := range []string{"service-accounts.key", "kubelet-client.key"} {
		text, err := os.ReadFile(filepath.Join(c.dir, file))
		if err != nil {
			t.Fatal(err)
		}
		all[file+" of "+c.name] = bytes.Split(text, []byte("\n"))[1]
	}
	return all
}

// tokenOfAnAccount is how the tokens begin that an API server signs for pods.
var tokenOfAnAccount = regexp.MustCompile(`eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]+`)

// keepToThemselves checks that no credential of an API server went to the other cluster: the two
// have met at their gateways alone, and neither store nor what operators passed on has one.
func (m *mesh) keepToThemselves(t *testing.T, w *wire, passed map[string]string) {
	t.Helper()
	for _, c := range m.all() {
		passed["the store of "+c.name] = c.must(t, "", "etcdctl", "get", "", "--prefix", "--endpoints", c.etcd)
		if text := passed["the store of "+c.name]; !strings.Contains(text, "/isthmus.dev/clusters/"+m.other(c).name) {
			t.Errorf("the store of %s, of %d bytes, is not what was meant to be searched", c.name, len(text))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("between the clusters: %v, %d bytes", w.ways, w.bytes)
	if len(w.ways) != 1 || w.ways["TCP 15443"] == 0 || len(w.found) > 0 {
		t.Errorf("between the clusters went %v, and in it %v; want connections to gateways, and no secret", w.ways, w.found)
	}
	for where, text := range passed {
		for name, secret := range w.secrets {
			if strings.Contains(text, string(secret)) {
				t.Errorf("%s has %s", where, name)
			}
		}
		if token := tokenOfAnAccount.FindString(text); token != "" {
			t.Errorf("%s has the token of an account, %.40s…", where, token)
		}
	}
}
