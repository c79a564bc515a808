package consulapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/authz/hostcheck"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
)

// How long a client may take.
const (
	headerTimeout  = 10 * time.Second
	bodyTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	refusalTimeout = time.Second
	endTimeout     = 2 * time.Second
)

const (
	mostHeader = 256 << 10 // of a request's line and headers: a filter of many services is in there
	mostBody   = 512 << 10
)

// endpoint answers one request with a value that is written as JSON. Bytes are JSON already,
// and nil is an empty answer.
type endpoint func(*request) (any, error)

// routes registers the endpoints.
func (s *Server) routes() {
	mux := http.NewServeMux()
	for pattern, e := range map[string]endpoint{
		"GET /v1/agent/self":                         (*request).agentSelf,
		"GET /v1/agent/services":                     (*request).agentServices,
		"PUT /v1/agent/service/register":             (*request).registerService,
		"PUT /v1/agent/service/deregister/{name...}": (*request).deregisterService,
		"PUT /v1/agent/check/update/{name...}":       (*request).updateCheck,
		"GET /v1/catalog/datacenters":                (*request).catalogDatacenters,
		"GET /v1/catalog/nodes":                      (*request).catalogNodes,
		"GET /v1/catalog/services":                   (*request).catalogServices,
		"GET /v1/catalog/service/{name...}":          (*request).catalogService,
		"GET /v1/health/checks/{name...}":            (*request).healthChecks,
		"GET /v1/health/service/{name...}":           (*request).healthService,
		"GET /v1/health/state/{name...}":             (*request).healthState,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, q *http.Request) { s.serve(w, q, e) })
	}
	s.pages = hostcheck.Hosts{Names: s.cfg.Hosts, Key: "consul.hosts", Domain: s.cfg.Kubernetes, Log: s.often}.Handler(mux)
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	to := &recorder{ResponseWriter: w}
	defer func() { s.metrics.answered(q.URL.Path, to.code) }()
	q.Body = http.MaxBytesReader(w, q.Body, mostBody) // which closes the connection that net/http's own w has
	// It holds until the body has been read whole. net/http does that where nobody here does.
	_ = http.NewResponseController(to).SetReadDeadline(time.Now().Add(bodyTimeout))
	s.pages.ServeHTTP(to, q)
}

// serve has an endpoint answer a request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, e endpoint) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		code := http.StatusBadRequest
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			code = http.StatusRequestEntityTooLarge
		}
		s.write(w, code, "text/plain; charset=utf-8", []byte("the request's body can't be read: "+err.Error()))
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a client may wait for the answer
	q := &request{s: s, http: r, header: w.Header(), body: body, name: r.PathValue("name")}
	var value any
	if err = q.read(); err == nil {
		value, err = e(q)
	}
	text, ready := value.([]byte)
	if err == nil && value != nil && !ready {
		text, err = json.Marshal(value)
	}
	switch {
	case r.Context().Err() != nil: // the client has gone
	case err == nil:
		s.write(w, http.StatusOK, "application/json", text)
	default:
		code := http.StatusInternalServerError
		if api := (*apiError)(nil); errors.As(err, &api) {
			code = api.code
		}
		s.write(w, code, "text/plain; charset=utf-8", []byte(err.Error()))
	}
}

// write writes an answer. A client that does not read it holds a goroutine for a while, and no
// more.
func (s *Server) write(w http.ResponseWriter, code int, kind string, body []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(code)
	_, _ = w.Write(body) // it fails once the client has gone
}

// decode reads a body of JSON strictly.
func (q *request) decode(into any) error {
	d := json.NewDecoder(bytes.NewReader(q.body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return badRequest("Request decode failed: %v", err)
	}
	return nil
}

const (
	tooManyText = "Your IP is issuing too many concurrent connections, please rate limit your calls\n"
	tooMany     = "HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nContent-Length: 81\r\nConnection: close\r\n\r\n" + tooManyText
)

// bound limits the connections to the API. A client beyond them is told so, as by a Consul agent.
func (s *Server) bound(l net.Listener) net.Listener {
	return bounded.New(l, bounded.Bounds{
		Max:       cmp.Or(s.cfg.MaxConnections, DefaultMaxConnections),
		PerClient: cmp.Or(s.cfg.MaxConnectionsPerClient, DefaultMaxConnectionsPerClient),
		Count:     func(bounded.Reason) { s.metrics.refused.Inc() },
		Refuse: func(c net.Conn) {
			// The answer fits into the socket's buffer, so nobody waits for the client.
			_ = c.SetDeadline(time.Now().Add(refusalTimeout))
			_, _ = c.Write([]byte(tooMany))
		},
	})
}
