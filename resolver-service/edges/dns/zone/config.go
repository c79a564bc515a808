package zone

import (
	"context"
	"net/netip"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/hosts"
)

// The defaults of a Config.
const (
	DefaultTTL        = 5 * time.Second
	DefaultGatewayTTL = 30 * time.Second
	// MaxNegativeTTL bounds how long anybody may keep that something is not there, and
	// an answer that is served although it is stale.
	MaxNegativeTTL = 5 * time.Second
)

// Config says what a zone answers, and to whom.
type Config struct {
	Cluster string         // this cluster's name
	Domain  catalog.Domain // of the names; checked by catalog.CheckDomain
	// Kubernetes is the cluster domain below which the names of Dapr's services,
	// <app>-dapr.<namespace>.svc.<Kubernetes>, are answered from the view; empty: none.
	Kubernetes string

	TTL        time.Duration // of addresses of instances, and of names without a cluster; 0 means DefaultTTL
	GatewayTTL time.Duration // of gateways' host names; 0 means DefaultGatewayTTL

	NSID    string // who answers, for RFC 5001 and id.server; at most 128 bytes are told
	Version string // what version.bind says

	Nameserver []netip.Addr   // addresses of ns.<Domain>; none: the one that was asked
	Forwarders []netip.Prefix // whose client subnet is believed (RFC 7871)

	// CookieSecret makes server cookies (RFC 9018). Replicas behind one address have the
	// same.
	CookieSecret [16]byte

	Forward Forwarder // of names outside the zone; nil: they are REFUSED

	// Hosts are the addresses of gateways that are known by host name; nil: of none.
	Hosts *live.Value[hosts.Addresses]

	// Settled is closed once views have what peers and sidecars that were here before the
	// service started are to tell; nil: they have it from the start. Until then what is
	// missing is SERVFAIL, since it may be there in a moment.
	Settled <-chan struct{}
}

// Forwarder asks other servers. It keeps none of the slices that it is given.
type Forwarder interface {
	// Forward writes the response to query, whole as by TCP and with its ID, into out, which
	// is empty. The response is SERVFAIL if no server has one. An OPT is its last record.
	// Forward returns when ctx ends.
	Forward(ctx context.Context, query []byte, out []byte) []byte
	// Cached is Forward for a response that is there already. It never blocks.
	Cached(query, out []byte) (response []byte, ok bool)
}
