package zone

import (
	"sync/atomic"
	"unsafe"

	"github.com/isthmus-mesh/isthmus/resolver-service/edges/dns/wire"
)

// outcome is how a query ended.
type outcome uint8

const (
	dropped outcome = iota // no response is due
	malformed
	otherOperation
	otherVersion
	otherClass
	transfer
	outside
	notForwarded
	forwarded
	aboutServer
	answered
	servedStale
	byServerName
	otherPort
	noData
	denied
	notFound
	unavailable
	stale
	notReady
	unknownCaller
	unresolved
	outcomes
)

// ends are what Count tells of each outcome.
var ends = [outcomes]Count{
	dropped:        {RCode: "none", Outcome: "dropped"},
	malformed:      {RCode: "FORMERR", Outcome: "malformed"},
	otherOperation: {RCode: "NOTIMP", Outcome: "other operation"},
	otherVersion:   {RCode: "BADVERS", Outcome: "other version of EDNS"},
	otherClass:     {RCode: "REFUSED", Outcome: "other class"},
	transfer:       {RCode: "REFUSED", Outcome: "transfer"},
	outside:        {RCode: "REFUSED", Outcome: "outside"},
	notForwarded:   {RCode: "REFUSED", Outcome: "not forwarded"},
	forwarded:      {RCode: "forwarded", Outcome: "forwarded"},
	aboutServer:    {RCode: "NOERROR", Outcome: "about the server"},
	answered:       {RCode: "NOERROR", Outcome: "ok"},
	servedStale:    {RCode: "NOERROR", Outcome: "ok, stale"},
	byServerName:   {RCode: "NOERROR", Outcome: "ok, by server name alone"},
	otherPort:      {RCode: "NOERROR", Outcome: "ok, at another port"},
	noData:         {RCode: "NOERROR", Outcome: "no data"},
	denied:         {RCode: "NXDOMAIN", Outcome: "denied"},
	notFound:       {RCode: "NXDOMAIN", Outcome: "not found"},
	unavailable:    {RCode: "NOERROR", Outcome: "unavailable"},
	stale:          {RCode: "NOERROR", Outcome: "stale"},
	notReady:       {RCode: "SERVFAIL", Outcome: "not ready"},
	unknownCaller:  {RCode: "NXDOMAIN", Outcome: "unknown caller"},
	unresolved:     {RCode: "SERVFAIL", Outcome: "gateway unresolved"},
}

var rcodes = [outcomes]wire.RCode{
	malformed: wire.FormErr, otherOperation: wire.NotImp, otherVersion: wire.BadVers, otherClass: wire.Refused,
	transfer: wire.Refused, outside: wire.Refused, notForwarded: wire.Refused, denied: wire.NXDomain, notFound: wire.NXDomain,
	notReady: wire.ServFail, unknownCaller: wire.NXDomain, unresolved: wire.ServFail,
}

// Count is how many queries ended in one way.
type Count struct {
	RCode   string // as "NOERROR"; "none" where there was no response, "forwarded" where it is another server's
	Outcome string // why, such as "ok", "denied", "unknown caller"
	Queries uint64
}

// counters count queries, in stripes that goroutines seldom share.
type counters [stripes]struct {
	counts [outcomes]atomic.Uint64
	_      [128]byte // what one core writes is far from what another does
}

const stripes = 32

// add counts a query. The stripe is that of the goroutine, told by where its stack is.
func (c *counters) add(o outcome) {
	var here byte
	page := uint64(uintptr(unsafe.Pointer(&here))) >> 13
	c[page*0x9E3779B97F4A7C15>>59].counts[o].Add(1)
}

// Unusable are how many answers to names of Dapr's services led to gateways that take who
// sends a server name alone, and to gateways on another port than the caller has.
func (z *Zone) Unusable() (byName, atOtherPort uint64) {
	return z.counters.sum(byServerName), z.counters.sum(otherPort)
}

func (c *counters) sum(o outcome) (n uint64) {
	for s := range c {
		n += c[s].counts[o].Load()
	}
	return n
}

// Counters are how many queries ended in each way, since the zone was made.
func (z *Zone) Counters() []Count {
	all := make([]Count, outcomes)
	for o := range all {
		all[o] = ends[o]
		all[o].Queries = z.counters.sum(outcome(o))
	}
	return all
}
