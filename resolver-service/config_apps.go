package resolverservice

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// AppListener is an address where the gateway leads to one app, for callers that dial an
// address and so name none.
type AppListener struct {
	Address string `yaml:"address"`
	App     string `yaml:"app"`
}

// checkApps adds to the document what is wrong with listen.apps, but for addresses that
// are none.
func (c *Config) checkApps(doc *strict.Document) {
	first := map[string]int{}
	for i, l := range c.Listen.Apps {
		path := fmt.Sprintf("listen.apps[%d]", i)
		if doc.Wrong(path) {
			continue
		}
		if l.Address == "" {
			doc.Refuse(path, "has no address", "write {address: \"10.0.0.7:50002\", app: shop/orders}")
		}
		if j, doubled := first[l.Address]; doubled && l.Address != "" && !strings.HasSuffix(l.Address, ":0") {
			doc.Refuse(path, fmt.Sprintf("has the address of listen.apps[%d], %s", j, l.Address), "give each app an address of its own")
		} else {
			first[l.Address] = i
		}
		app, err := catalog.ParseApp(l.App)
		if err = cmp.Or(err, app.CheckHost()); err != nil {
			doc.Refuse(path, "leads to no app: "+err.Error(), "write app: namespace/app-id, such as shop/orders")
		}
	}
}

// appListener names a listener of one app among the others.
func appListener(i int) string { return fmt.Sprintf("apps[%d]", i) }

func (l AppListener) app() catalog.App {
	app, _ := catalog.ParseApp(l.App) // was checked
	return app
}
