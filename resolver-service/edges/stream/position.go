package stream

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// position is by what sidecars are ordered. It holds also once the sidecar has gone.
type position struct {
	app     catalog.App
	address netip.AddrPort // invalid where none is registered
	source  netip.Addr
	number  uint64 // of the stream
}

func (c *caller) position() position {
	p := position{app: c.app, source: c.source, number: c.number}
	if i := c.watch.hello.instance; i != nil {
		p.address = i.Address
	}
	return p
}

func (p *position) compare(o *position) int {
	return cmp.Or(p.app.Compare(o.app), p.address.Compare(o.address), p.source.Compare(o.source), cmp.Compare(p.number, o.number))
}

// noAddress stands for an address that there is not.
const noAddress = "-"

// String is for [parsePosition].
func (p *position) String() string {
	address, source := noAddress, noAddress
	if p.address.IsValid() {
		address = p.address.String()
	}
	if p.source.IsValid() {
		source = p.source.String()
	}
	return fmt.Sprintf("%s %s %d %s", address, source, p.number, p.app)
}

func parsePosition(text string) (p *position, err error) {
	p = &position{}
	parts := strings.SplitN(text, " ", 4)
	if len(parts) < 4 {
		err = errors.New("want an address, a source, a number and an app")
	}
	if err == nil && parts[0] != noAddress {
		p.address, err = netip.ParseAddrPort(parts[0])
	}
	if err == nil && parts[1] != noAddress {
		p.source, err = netip.ParseAddr(parts[1])
	}
	if err == nil {
		p.number, err = strconv.ParseUint(parts[2], 10, 64)
	}
	if err == nil {
		p.app, err = catalog.ParseApp(parts[3])
	}
	if err != nil {
		return nil, fmt.Errorf("%q is no position of a sidecar: %w", text, err)
	}
	return p, nil
}
