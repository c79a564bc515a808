package gateway

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway/relay"
)

// reason is why a connection was not passed on: a value of the metric's label.
type reason string

const (
	notTCP       reason = "not_tcp"         // the listener yields something else
	tooMany      reason = "max_connections" // reset at once
	helloTimeout reason = "hello_timeout"
	helloEvicted reason = "hello_evicted" // gave way to a newer one
	helloTooLong reason = "hello_too_long"
	helloAborted reason = "hello_aborted" // the client left before it named an app
	badHello     reason = "bad_hello"
	notTLS       reason = "not_tls"
	proxyHeader  reason = "proxy_protocol"
	plaintextOff reason = "plaintext"
	noName       reason = "no_name"
	unknownName  reason = "unknown_name"
	otherCluster reason = "other_cluster"
	notReady     reason = "not_ready"        // no table yet
	noInstance   reason = "no_instance"      // exported, nothing ready
	unreachable  reason = "unreachable"      // ready, yet none could be reached
	notAllowed   reason = "instance_refused" // Config.Check refuses every instance
	broken       reason = "broken"           // the instance broke the connection off
	noAnswer     reason = "no_answer"        // the instance said nothing in time
	looped       reason = "looped"           // it has passed this gateway already
	sourceShare  reason = "max_per_source"   // as tooMany
	tooManyPeers reason = "max_peers"
	noTunnel     reason = "no_tunnel" // of a cluster that dials this one
	unheard      reason = "unheard"   // such a cluster has yet to say what it exports
)

// advice is what to do about a refusal, for the log and plain HTTP/2 clients.
var advice = map[reason]string{
	notTCP:       "give the gateway a TCP listener",
	tooMany:      "raise the gateway's limit of connections, or add a gateway",
	notTLS:       "only TLS and, where plaintext is on, HTTP/2 are served",
	proxyHeader:  "switch the PROXY protocol off at the load balancer in front of this gateway",
	plaintextOff: "the caller's daprd runs without mTLS: switch mTLS on in its Configuration (spec.mtls.enabled) or, for development only, set plaintext: true for this gateway",
	noName:       "daprd sends no name when it dials an IP: its resolver must give it the app's host name",
	unknownName:  "export the app in this cluster with an AppExport, if others are to call it",
	otherCluster: "the name is for another cluster; correct the gateways of that cluster, in the Cluster object that the caller's cluster has of it",
	notReady:     "the resolver service has yet to publish what it exports",
	noInstance:   "start an instance of the app, or see why none is ready",
	unreachable:  "see why the gateway can't connect to the app's sidecars",
	notAllowed:   "an instance of an exported app may not have such an address; see who registered it",
	broken:       "see the log of the instance's sidecar",
	noAnswer:     "see why the instance's sidecar accepts connections and does not answer",
	looped:       "an instance of the app is this gateway, or another gateway that leads back here: see the addresses of the app's instances",
	sourceShare:  "raise gateway.maxPerSource if these are callers behind one address; else see what opens so many",
	tooManyPeers: "see who opens connections to the resolver service by the gateway",
	unheard:      "that cluster dials this one, and has not said yet what it exports; see isthmus status in both",
	noTunnel:     "that cluster dials this one, and has no connection here; see isthmus status in both",
}

// refusal is one connection that was not passed on, and what is known of it.
type refusal struct {
	reason   reason
	host     string // as the client named it; untrusted
	app      catalog.App
	revision uint64
	from     netip.AddrPort
	err      error
	stream   uint32 // of the request, in HTTP/2 without TLS; 0 with TLS
	answer   []byte // of crypto/tls, to a broken ClientHello
}

// attrs are what is known, under the keys that the logs of Isthmus share.
func (r *refusal) attrs() []any {
	attrs := []any{"reason", string(r.reason)}
	if r.from.IsValid() {
		attrs = append(attrs, "from", r.from)
	}
	if r.host != "" {
		attrs = append(attrs, "host", r.host[:min(len(r.host), 255)])
	}
	if r.app != (catalog.App{}) {
		attrs = append(attrs, "app", r.app.String())
	}
	if r.revision != 0 {
		attrs = append(attrs, "revision", r.revision)
	}
	if r.err != nil {
		attrs = append(attrs, "err", r.err)
	}
	if a := advice[r.reason]; a != "" {
		attrs = append(attrs, "advice", a)
	}
	return attrs
}

// refusals counts all refusals and logs some: whoever can reach the gateway can cause them,
// and must not be able to fill a disk with them.
type refusals struct {
	logger  *throttle.Log
	metrics *metrics
}

func newRefusals(logger *slog.Logger, m *metrics) *refusals {
	return &refusals{logger: throttle.New(logger, throttle.Interval), metrics: m}
}

// log counts a refusal, and logs it unless one like it was logged just now.
func (r *refusals) log(x refusal) {
	r.metrics.refusals.WithLabelValues(string(x.reason)).Inc()
	r.logger.Warn(string(x.reason), "gateway refused a connection", x.attrs()...)
}

// instance counts and logs an instance that the gateway must not connect to.
func (r *refusals) instance(app catalog.App, instance string, err error) {
	r.metrics.instances.Inc()
	r.logger.Warn("instance", "gateway does not connect to an instance of an exported app, and tries the others", "app", app.String(),
		"instance", instance, "err", err)
}

// acceptFailed logs, as seldom, that no connection can be accepted.
func (r *refusals) acceptFailed(err error, pause time.Duration) {
	r.metrics.refusals.WithLabelValues("accept_failed").Inc()
	r.logger.Error("accept_failed", "gateway can't accept connections; goes on trying", "err", err, "pause", pause,
		"advice", "raise the limit of open files (ulimit -n)")
}

// Alerts of TLS (RFC 8446, 6.2), each a whole record: type, version, length, level
// fatal, description.
var (
	alertUnrecognizedName = []byte{21, 3, 1, 0, 2, 2, 112}
	// alertInternalError goes out when the name is right and nothing can serve it
	// now. grpc-go fails calls with Unavailable, which daprd retries, and connects
	// again by its own backoff; for a wrong name it would be told so instead.
	alertInternalError = []byte{21, 3, 1, 0, 2, 2, 80}
	// For "isthmus check" of another cluster, which tells people what is on the way to here:
	// something that sends the PROXY protocol, or that takes the server name out.
	alertUnexpectedMessage = []byte{21, 3, 1, 0, 2, 2, 10}
	alertMissingExtension  = []byte{21, 3, 1, 0, 2, 2, 109}
)

// farewell is how long a refused client has to take its answer and close.
const farewell = 500 * time.Millisecond

// reset tells whether a connection is ended without a word, since there are too many.
func (r reason) reset() bool { return r == tooMany || r == sourceShare || r == tooManyPeers }

// temporary tells whether the name is right and nothing can serve it now.
func (r reason) temporary() bool {
	switch r {
	case notReady, noInstance, unreachable, notAllowed, broken, noAnswer, looped, noTunnel, unheard:
		return true
	}
	return false
}

// turnAway tells a client that it was refused, where there is a way to, and closes
// its connection. HTTP/2 without TLS is closed in silence where it is not let in at
// all: after any valid answer, gRPC takes the connection for one that worked, and
// connects again without a pause.
func turnAway(conn relay.Conn, r *refusal) {
	if r.reason.reset() {
		relay.Reset(conn)
		return
	}
	defer conn.Close()
	answer := r.answer
	switch {
	case r.stream != 0:
		answer = refuseHTTP2(r)
	case len(answer) > 0:
	case r.reason == noName || r.reason == unknownName || r.reason == otherCluster:
		answer = alertUnrecognizedName
	case r.reason.temporary():
		answer = alertInternalError
	}
	if len(answer) == 0 {
		return
	}
	conn.SetDeadline(time.Now().Add(farewell))
	if _, err := conn.Write(answer); err != nil {
		return
	}
	// A close with bytes unread would be a reset, which can overtake the answer.
	conn.CloseWrite()
	io.CopyN(io.Discard, conn, maxPrelude)
}

// refuseHTTP2 answers the first request with gRPC's Unavailable and the reason.
func refuseHTTP2(r *refusal) []byte {
	var out bytes.Buffer
	frames := http2.NewFramer(&out, nil)
	message := "isthmus gateway: " + string(r.reason)
	if r.host != "" {
		message += " " + r.host[:min(len(r.host), 255)]
	}
	if a := advice[r.reason]; a != "" {
		message += ": " + a
	}
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	for _, f := range []hpack.HeaderField{
		{Name: ":status", Value: "200"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "grpc-status", Value: "14"}, // UNAVAILABLE
		{Name: "grpc-message", Value: message},
	} {
		encoder.WriteField(f)
	}
	frames.WriteHeaders(http2.HeadersFrameParam{StreamID: r.stream, BlockFragment: headers.Bytes(), EndHeaders: true, EndStream: true})
	frames.WriteGoAway(r.stream, http2.ErrCodeNo, nil)
	return out.Bytes()
}

// isReset tells whether the other side broke a connection off.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
