package component

import (
	"log/slog"
	"slices"
)

// part is what a daprd may be without, and why it is.
type part struct {
	name string
	err  error // nil: its program wants none
}

// parts are what one daprd is without.
type parts []part

const (
	dialerPart = "dialer"
	guardPart  = "guard"
)

// losses say what a daprd loses with a part.
var losses = map[string]string{
	dialerPart: "calls go without the dialer: each lookup chooses an address, no call goes on elsewhere, calls by another name fail, and names of gateways need DNS",
	guardPart:  "nobody guards the calls that come in: every caller is let in, and the app can't trust the headers that name its caller",
}

// WithoutDialer has lookups answer addresses, since no dialer is registered. The error says why that
// can't be; nil: it is not wanted.
func (c *Component) WithoutDialer(err error) { c.without = append(c.without, part{dialerPart, err}) }

// WithoutGuard is the same for the interceptors of [Component.RegisterInterceptors].
func (c *Component) WithoutGuard(err error) { c.without = append(c.without, part{guardPart, err}) }

// has tells whether this daprd has a part.
func (all parts) has(name string) bool {
	return !slices.ContainsFunc(all, func(p part) bool { return p.name == name })
}

// logLost logs what is lost by no choice of the program's.
func (all parts) logLost(log *slog.Logger) {
	for _, p := range all {
		if p.err != nil {
			log.Error(losses[p.name]+"; build daprd with the version of gRPC that the go.mod of Isthmus names", "err", p.err)
		}
	}
}

// runtime is what operators read of this daprd: its version, and what it is without.
func (all parts) runtime() string {
	text, before := runtimeVersion(), " without "
	for _, p := range all {
		text += before + p.name
		before = " and "
	}
	return text
}
