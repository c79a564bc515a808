package resolverservice

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
)

// checkResolver adds to the document what is wrong with the resolver.
func (c checker) checkResolver() {
	checkCounts(c.doc, "resolver", map[string]int{
		"maxConnections": c.Resolver.MaxConnections, "maxConnectionsPerClient": c.Resolver.MaxConnectionsPerClient,
	})
	if c.Resolver.SocketMode == "" || c.doc.Wrong("resolver.socketMode") {
		return
	}
	if _, ok := edge.UnixPath(c.Listen.Resolver); !ok {
		c.doc.Refuse("resolver.socketMode", "listen.resolver is no unix socket", "write listen: {resolver: \"unix:///run/isthmus/resolver.sock\"}, or leave socketMode out")
	}
	if _, err := parseSocketMode(c.Resolver.SocketMode); err != nil {
		c.doc.Refuse("resolver.socketMode", err.Error(), "write octal digits in quotes, such as \"0660\"")
	}
}

// parseSocketMode reads permission bits as chmod takes them.
func parseSocketMode(text string) (os.FileMode, error) {
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || n > 0o777 || len(text) < 3 {
		return 0, fmt.Errorf("%q is no mode of a file", text)
	}
	return os.FileMode(n), nil
}

// listenResolver is where listen.resolver is, if it is.
func (c *Config) listenResolver() []edge.Listener {
	listen := edge.At("resolver", c.Listen.Resolver)
	for i := range listen {
		listen[i].Mode, _ = parseSocketMode(c.Resolver.SocketMode) // was checked; 0 where it is empty
	}
	return listen
}

// AppListener is an address where the gateway leads to one app, for callers that dial an
// address and so name none.
type AppListener struct {
	Address string `yaml:"address"`
	App     string `yaml:"app"`
}

// checkApps adds to the document what is wrong with listen.apps, but for addresses that
// are none.
func (c checker) checkApps() {
	first := map[string]int{}
	for i, l := range c.Listen.Apps {
		path := fmt.Sprintf("listen.apps[%d]", i)
		if c.doc.Wrong(path) {
			continue
		}
		if l.Address == "" {
			c.doc.Refuse(path, "has no address", "write {address: \"10.0.0.7:50002\", app: shop/orders}")
		}
		if j, doubled := first[l.Address]; doubled && l.Address != "" && !strings.HasSuffix(l.Address, ":0") {
			c.doc.Refuse(path, fmt.Sprintf("has the address of listen.apps[%d], %s", j, l.Address), "give each app an address of its own")
		} else {
			first[l.Address] = i
		}
		app, err := catalog.ParseApp(l.App)
		if err = cmp.Or(err, app.CheckHost()); err != nil {
			c.doc.Refuse(path, "leads to no app: "+err.Error(), "write app: namespace/app-id, such as shop/orders")
		}
	}
}

// appListener names a listener of one app among the others.
func appListener(i int) string { return fmt.Sprintf("apps[%d]", i) }

func (l AppListener) app() catalog.App {
	app, _ := catalog.ParseApp(l.App) // was checked
	return app
}
