package console

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/console/browser"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// watched is an overview that stays open in a browser, while things go wrong.
type watched struct {
	t    *testing.T
	m    *mesh
	page *browser.Page
}

// TestFaultsShow on an overview that stays open: in the words of isthmus status, with whom they hurt,
// and not for longer than they last. Times are logged: a busy machine is no fault of a page.
func TestFaultsShow(t *testing.T) {
	t.Parallel()
	objects := t.TempDir()
	m := newMesh(t, map[string]any{"store": map[string]any{"file": map[string]any{"path": objects}}})
	toEast, toWest := m.proxy(m.east.Gateway), m.proxy(m.west.Gateway)
	m.apply(m.west, meshtest.ClusterThatLapses(lapse, "east", toEast.Addr()))
	m.apply(m.east, meshtest.ClusterThatLapses(lapse, "west", toWest.Addr()))
	m.settled()
	file := filepath.Join(objects, "more.yaml")
	write := func(text string) error { return os.WriteFile(file, []byte(text), 0o600) }
	if err := write(meshtest.Selection("shop", "wallet", "app: orders")); err != nil {
		t.Fatal(err)
	}
	w := &watched{t, m, browser.Start(t, browser.Options{}).Page(t)}
	m.open(w.page, m.west)
	w.page.Await("HEALTHY")
	w.page.Await("live")
	for _, fault := range []struct {
		name       string
		make, mend func() error
		status     string   // what isthmus status says, a part of it; empty: nothing
		page       []string // what the page says besides
	}{
		{"the service and gateway of a cluster are killed", m.east.Kill, func() error { return m.east.Restart(t.Context()) },
			"peer east: ", []string{"shop/cart to shop/orders: fails", "shop/checkout to shop/ledger: fails"}},
		{"the way from it to here is cut", func() error { toWest.Drop(); return nil }, toWest.Mend,
			"", []string{"\tstale\t"}}, // in the column of how east hears west
		{"what is stored of an object is refused", func() error { return write(meshtest.Selection("shop", "wallet", "ap: orders")) },
			func() error { return write(meshtest.Selection("shop", "wallet", "app: orders")) },
			"object: refused: ", []string{"In force is the version before of AppEndpoints shop/wallet."}},
		{"a root of a cluster has expired", func() error { return write(m.expiredRoot()) }, func() error { return os.Remove(file) },
			"expired at", []string{"peer root south"}},
		{"it comes and goes, and is damped", func() error { return m.comeAndGo(toEast) }, func() error { return nil },
			"peer east: damped", []string{"shop/cart to shop/orders: still goes there"}},
	} {
		t.Logf("%s", fault.name)
		if err := fault.make(); err != nil {
			t.Fatal(err)
		}
		w.told(fault.status)
		w.agrees(fault.page)
		if err := fault.mend(); err != nil {
			t.Fatal(err)
		}
		w.told("")
		w.without(append(fault.page, "UNHEALTHY"))
	}
}

// proxy is a way to a gateway that can be cut.
func (m *mesh) proxy(gateway string) *servers.Proxy {
	m.t.Helper()
	p, err := servers.NewProxy(gateway)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(p.Close)
	return p
}

// expiredRoot is a Cluster whose root has expired.
func (m *mesh) expiredRoot() string {
	m.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		m.t.Fatal(err)
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root of before"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().AddDate(-2, 0, 0), NotAfter: time.Now().AddDate(-1, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		m.t.Fatal(err)
	}
	text := strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	return "apiVersion: isthmus.dev/v1alpha1\nkind: Cluster\nmetadata: {name: south}\nspec:\n  trust:\n    domain: south.example\n    roots: |\n      " +
		strings.ReplaceAll(text, "\n", "\n      ") + "\n"
}

// comeAndGo cuts a way until leases have run out too often.
func (m *mesh) comeAndGo(way *servers.Proxy) error {
	for range 5 {
		way.Drop()
		time.Sleep(2*lapse + lapse/2)
		if err := way.Mend(); err != nil {
			return err
		}
		time.Sleep(2 * lapse)
	}
	return nil
}

// problems are what isthmus status says is wrong.
func (w *watched) problems() (all []string) {
	w.t.Helper()
	out, err := w.m.isthmus(w.m.west, "", "status", "--unhealthy")
	if err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "  ") {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

// told waits until isthmus status says something or, for an empty text, that all is well.
func (w *watched) told(text string) {
	w.t.Helper()
	meshtest.Eventually(w.t, meshtest.Patience, func() error {
		all := w.problems()
		if text == "" && len(all) > 0 || !slices.ContainsFunc(append(all, ""), func(p string) bool { return strings.Contains(p, text) }) {
			return fmt.Errorf("isthmus status says %q, and not %q", all, text)
		}
		return nil
	})
}

// agrees waits until the page says what isthmus status says, and other texts, and logs how long after the
// latest change of the status that is.
func (w *watched) agrees(texts []string) {
	w.t.Helper()
	var last []string
	since := time.Now()
	meshtest.Eventually(w.t, meshtest.Patience, func() error {
		now := w.problems()
		if !slices.Equal(now, last) {
			last, since = now, time.Now()
		}
		shown := w.page.Text()
		for _, text := range append(now, texts...) {
			if calls, ok := strings.CutPrefix(text, "calls "); ok {
				text, _, _ = strings.Cut(calls, ": ") // the page tells the rest line by line
			}
			if !strings.Contains(shown, text) {
				return fmt.Errorf("the page does not show %q; it shows:\n%s", text, shown)
			}
		}
		return nil
	})
	w.t.Logf("  %s after isthmus status: %q", time.Since(since).Round(10*time.Millisecond), append(last, texts...))
}

// without waits until the page shows none of the texts, and logs how long that takes.
func (w *watched) without(texts []string) {
	w.t.Helper()
	since := time.Now()
	defer func() {
		w.t.Logf("  %s until the page says that all is well", time.Since(since).Round(10*time.Millisecond))
	}()
	meshtest.Eventually(w.t, meshtest.Patience, func() error {
		shown := w.page.Text()
		for _, text := range texts {
			if strings.Contains(shown, text) {
				return fmt.Errorf("the page still shows %q", text)
			}
		}
		return nil
	})
}
