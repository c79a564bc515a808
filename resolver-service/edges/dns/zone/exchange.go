package zone

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/transport"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// exchange is one query and the response to it. It lives on the stack: nothing that it
// calls may keep any of it, or of the names in it.
type exchange struct {
	zone  *Zone
	query *transport.Query
	ctx   context.Context // nil where the response must not be waited for

	asked    wire.Query
	response response
	who      who
	view     *catalog.View // of who asks; of apps without a selection where that is not known

	outcome outcome
	later   bool
	settled bool   // Config.Settled was, before anything was looked up
	anew    bool   // the view was read again
	unnamed bool   // callers may dial the answer's addresses without a server name
	meant   uint16 // the port that they must dial
	why     why
}

// response is one in the making: it has the records of a zone.
type response struct {
	wire.Response
	zone *Zone
}

// respond appends the response to out. It is empty where none is due, and where later is
// set.
func (x *exchange) respond(out []byte) []byte {
	rcode, reply := x.asked.Parse(x.query.Packet)
	if !reply {
		x.outcome = dropped
		return out
	}
	limit := wire.MaxSize
	if x.query.Protocol == transport.UDP {
		limit = x.asked.Limit()
	} else {
		x.query.Standing = transport.Proved
	}
	x.response.Begin(out, x.query.Packet, &x.asked, limit, wire.OptionsSize(&x.asked, x.zone.cfg.NSID))
	x.response.Recursive = x.zone.cfg.Forward != nil
	var options wire.Options
	var cookie [fullCookieSize]byte
	if x.asked.Cookie != nil {
		var valid bool
		cookie, valid = x.zone.cookies.answer(x.asked.Cookie, plain(x.query.From.Addr()), time.Now())
		if valid {
			x.query.Standing = transport.Proved
		}
		options.Cookie = cookie[:]
	}
	switch rcode {
	case wire.NoError:
		switch x.route(); {
		case x.later:
			return out
		case x.outcome == forwarded:
			return x.forward(out, limit, &options)
		}
	case wire.NotImp:
		x.outcome = otherOperation
	case wire.BadVers:
		x.outcome = otherVersion
	default:
		x.outcome = malformed
	}
	return x.finish(&options)
}

// finish ends the response: with the code of its outcome, and with the extended error
// that goes with it.
func (x *exchange) finish(options *wire.Options) []byte {
	x.response.RCode = rcodes[x.outcome]
	options.NSID = x.zone.cfg.NSID
	options.Subnet = x.who.told
	options.Code, options.Error = extendedError{x}.code()
	mark := x.response.OpenOptions(&x.asked, options)
	text := len(x.response.Buf)
	if options.Error && x.asked.EDNS {
		x.response.Buf = extendedError{x}.append(x.response.Buf)
	}
	return x.response.Finish(mark, text)
}

// route finds out what kind of name is asked for, and answers.
func (x *exchange) route() {
	m, z := &x.asked, x.zone
	switch {
	case m.Bare:
		x.outcome = aboutServer
		return
	case m.Class == wire.ClassCH:
		x.chaos()
		return
	case m.Class != wire.ClassIN:
		x.outcome = otherClass
		return
	case m.Type == wire.TypeAXFR || m.Type == wire.TypeIXFR:
		x.outcome = transfer
		return
	}
	x.settled = z.isSettled()
	x.ask()
	if below, ok := z.domain.of(&m.Name); ok {
		x.inZone(below)
		return
	}
	if below, ok := z.services.of(&m.Name); ok && x.service(below) {
		return
	}
	if below, ok := reverse4.of(&m.Name); ok && x.reverse(address4(&m.Name, below)) {
		return
	}
	if below, ok := reverse6.of(&m.Name); ok && x.reverse(address6(&m.Name, below)) {
		return
	}
	x.elsewhere()
}

// elsewhere is for names that are not ours.
func (x *exchange) elsewhere() {
	x.who.subnet, x.who.told = false, false // it decides nothing
	labels, special := resolverArpa.of(&x.asked.Name)
	switch {
	case x.zone.cfg.Forward == nil:
		x.outcome = outside
	case !x.mayForward():
		x.outcome, x.why = notForwarded, why{about: whyNotForwarded}
	case special && x.asked.Flags()&wire.FlagRD != 0:
		x.noResolvers(labels)
	default:
		x.outcome = forwarded
	}
}

// mayForward tells whether other servers are asked for the sender: if it is an instance,
// a listed forwarder, who a listener is bound to, or has an address that is not public.
// A server that asks for everybody is soon used against others.
func (x *exchange) mayForward() bool {
	a := plain(x.query.From.Addr())
	return x.who.known || x.who.shared || private(a) || x.zone.believes(a)
}

// forward answers with what other servers say, at once where that is known.
func (x *exchange) forward(out []byte, limit int, options *wire.Options) []byte {
	var response []byte
	if x.ctx != nil {
		response = x.zone.cfg.Forward.Forward(x.ctx, x.query.Packet, out)
	} else {
		var known bool
		if response, known = x.zone.cfg.Forward.Cached(x.query.Packet, out); !known {
			x.later = true
			return out
		}
	}
	options.NSID = x.zone.cfg.NSID
	return wire.AppendOptions(wire.Truncate(response, limit-wire.AppendedSize(&x.asked, options)), &x.asked, options)
}

// synced gets the view that decides. Where there is none yet, the outcome is not ready.
func (x *exchange) synced() bool {
	view, ok := x.zone.view(x.who.app)
	if !ok {
		x.wait(whyNotSynced)
		return false
	}
	x.view = view
	x.response.Authoritative = true
	return true
}

// wait answers what is not known yet, and may be in a moment.
func (x *exchange) wait(about about) {
	x.outcome, x.why = notReady, why{about: about}
	x.response.Authoritative = false
}

// anywhere is one of n places.
func anywhere(n int) int {
	if n < 2 {
		return 0
	}
	return int(rand.Uint32N(uint32(n)))
}

// private tells whether a client's address is not public: loopback, RFC 1918, RFC 4193, RFC
// 6598 or link-local.
func private(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || shared.Contains(a)
}

// shared is the address space of RFC 6598, which clouds and overlay networks give to pods and
// machines. No router passes it on between networks.
var shared = netip.MustParsePrefix("100.64.0.0/10")
