package console

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/console/browser"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// person does a task in a browser, and counts clicks.
type person struct {
	*browser.Page
	t      *testing.T
	m      *mesh
	clicks int
}

const mostClicks = 6

func (p *person) click(name string) {
	p.t.Helper()
	p.clicks++
	p.Click(name)
}

// picture keeps a picture of the page, and has it in the docs where ISTHMUS_PICTURES says so.
func (p *person) picture(name string) {
	p.t.Helper()
	if os.Getenv("ISTHMUS_PICTURES") == "" {
		p.Keep(name)
		return
	}
	text, err := os.ReadFile(p.Screenshot(name))
	if err == nil {
		err = os.WriteFile(filepath.Join("..", "..", "docs", "pictures", "console-"+name+".png"), text, 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// TestTasks that bring people to a console take a few clicks, from the overview on.
func TestTasks(t *testing.T) {
	t.Parallel()
	m := newMesh(t, nil)
	b := browser.Start(t, browser.Options{})
	for _, task := range []struct {
		name string
		at   *sandbox.Cluster
		do   func(*person)
	}{
		{"why can't wallet reach ledger", m.west, whyNot},
		{"move 10 % of cart's calls to north", m.west, moveToNorth},
		{"undo that", m.west, undo},
		{"who may call ledger", m.east, whoMayCall},
		{"have a new root of east beside the old one", m.west, rotateRoot},
		{"east is gone: whom does it hurt", m.west, whomItHurts},
	} {
		page := b.Page(t)
		page.Viewport(1280, 900)
		m.open(page, task.at)
		p := &person{Page: page, t: t, m: m}
		task.do(p)
		t.Logf("%s: %d clicks", task.name, p.clicks)
		if p.clicks > mostClicks {
			t.Errorf("%s: %d clicks", task.name, p.clicks)
		}
	}
}

func whyNot(p *person) {
	p.m.apply(p.m.west, meshtest.Selection("shop", "wallet", "app: orders"))
	p.click("Explain")
	p.Fill("Caller", "shop/wallet")
	p.Fill("asks for", "shop/ledger")
	p.click("Explain the call")
	p.Await("denied")
	p.Await("AppEndpoints shop/wallet")
	p.Open(strings.Replace(p.URL(), "shop%2Fwallet", "shop/checkout", 1))
	p.Await("taken")
	p.picture("explain")
}

// shares are the shares of a decision by cluster.
func (p *person) shares(from, to string) map[string]float64 {
	p.t.Helper()
	out, err := p.m.isthmus(p.m.west, "", "explain", "--from", from, to, "-o", "json")
	var d struct {
		Routes []struct {
			Cluster string
			Share   float64
		}
	}
	if err != nil || json.Unmarshal([]byte(out), &d) != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
	all := map[string]float64{}
	for _, r := range d.Routes {
		all[r.Cluster] = r.Share
	}
	return all
}

func moveToNorth(p *person) {
	p.click("Map")
	p.picture("map")
	p.click("cart 1 ready, shop/cart in west")
	p.click("Plan a change")
	text := p.Value("Objects, as YAML")
	changed := strings.Replace(text, "- {cluster: east}", "- {cluster: east, weight: 90}\n    - {cluster: north, weight: 10}", 1)
	p.Fill("Objects, as YAML", changed)
	p.click("Show what this would change")
	p.Await("1 lookup would go elsewhere")
	p.Await("ok, east 90 %, north 10 %")
	if now := p.shares("shop/cart", "orders"); now["north"] != 0 {
		p.t.Errorf("it was only tried, and calls go to %v", now)
	}
	p.picture("plan")
	p.click("Apply exactly this")
	p.Await("Done.")
	if now := p.shares("shop/cart", "orders"); now["north"] != 10 || now["east"] != 90 {
		p.t.Errorf("calls go to %v", now)
	}
}

func undo(p *person) {
	p.click("Objects")
	p.click("shop/cart")
	plans := p.Elements("link")
	last := ""
	for _, link := range plans { // of the versions, the oldest is the last
		if strings.HasPrefix(link.Name, "Plan to go back to this: revision ") {
			last = link.Name
		}
	}
	p.click(last)
	p.click("Show what this would change")
	p.click("Apply exactly this")
	p.Await("Done.")
	if now := p.shares("shop/cart", "orders"); now["east"] != 100 {
		p.t.Errorf("calls go to %v", now)
	}
}

func whoMayCall(p *person) {
	p.click("Apps")
	p.click("shop/ledger")
	p.Await("AppExport shop/ledger")
	p.Await("west")
}

func rotateRoot(p *person) {
	next, err := sandbox.NewAuthority()
	if err != nil {
		p.t.Fatal(err)
	}
	p.click("Trust")
	p.click("plan a change of its roots: east")
	roots := "spec:\n  trust:\n    roots: |\n      " + strings.ReplaceAll(strings.TrimSpace(string(p.m.west.Sentry.Anchors)+string(next.Anchors())), "\n", "\n      ") + "\n"
	p.Fill("Objects, as YAML", strings.Replace(p.Value("Objects, as YAML"), "spec:\n", roots, 1))
	p.click("Show what this would change")
	p.click("Apply exactly this")
	p.Await("Done.")
	out, err := p.m.isthmus(p.m.west, "", "trust")
	if n := strings.Count(out, "peer root          east"); err != nil || n != 2 {
		p.t.Errorf("%d roots of east, %v:\n%s", n, err, out)
	}
	p.m.settled()
}

func whomItHurts(p *person) {
	if err := p.m.east.Kill(); err != nil {
		p.t.Fatal(err)
	}
	p.Await("shop/cart to shop/orders: fails")
	p.Await("shop/checkout to shop/ledger: fails")
	p.picture("overview")
	p.click("cluster east")
	p.Await("Whose calls lead there")
}
