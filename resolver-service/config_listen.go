package resolverservice

import (
	"fmt"
	"os"
	"strconv"

	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
)

// checkResolver adds to the document what is wrong with the resolver.
func (c *Config) checkResolver(doc *strict.Document) {
	checkCounts(doc, "resolver", map[string]int{
		"maxConnections": c.Resolver.MaxConnections, "maxConnectionsPerClient": c.Resolver.MaxConnectionsPerClient,
	})
	if c.Resolver.SocketMode == "" || doc.Wrong("resolver.socketMode") {
		return
	}
	if _, ok := edge.UnixPath(c.Listen.Resolver); !ok {
		doc.Refuse("resolver.socketMode", "listen.resolver is no unix socket", "write listen: {resolver: \"unix:///run/isthmus/resolver.sock\"}, or leave socketMode out")
	}
	if _, err := parseSocketMode(c.Resolver.SocketMode); err != nil {
		doc.Refuse("resolver.socketMode", err.Error(), "write octal digits in quotes, such as \"0660\"")
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
