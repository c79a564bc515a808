package resolverservice

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/isthmus-mesh/isthmus/resolver-service/hostcheck"
	"github.com/isthmus-mesh/isthmus/strict"
)

// checkAdmin adds to the document what is wrong with listen.debug and admin.
func (c *Config) checkAdmin(doc *strict.Document) {
	if d := c.Listen.Debug; d != "" && !loopback(d) && !c.Listen.DebugExposed && !doc.Wrong("listen.debug") {
		doc.Refuse("listen.debug", fmt.Sprintf("whoever reaches %s could read every view and take profiles", d),
			"write a loopback address such as "+DefaultDebug+", or \"debugExposed: true\" if that is meant")
	}
	for i, name := range c.Admin.Hosts {
		if err := hostcheck.Check(name); err != nil {
			doc.Refuse(fmt.Sprintf("admin.hosts[%d]", i), err.Error(), "write a name without a port, such as isthmus.example.com")
		}
	}
}

// defaultSocketMode lets the service's own user connect, and nobody else.
const defaultSocketMode os.FileMode = 0o600

// checkResolver adds to the document what is wrong with resolver, but for the bounds.
func (c *Config) checkResolver(doc *strict.Document) {
	if c.Resolver.SocketMode == "" || doc.Wrong("resolver.socketMode") {
		return
	}
	if _, ok := unixPath(c.Listen.Resolver); !ok {
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

// socketMode is the mode of the resolver's unix socket.
func (r Resolver) socketMode() os.FileMode {
	if r.SocketMode == "" {
		return defaultSocketMode
	}
	mode, _ := parseSocketMode(r.SocketMode) // was checked
	return mode
}

// loopback tells whether only this machine reaches an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}
