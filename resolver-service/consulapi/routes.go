package consulapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/resolver-service/hostcheck"
)

// endpoint answers one request: with a value that is written as JSON, or nil for an
// empty answer.
type endpoint func(*request) (any, error)

// told by endpoints whose answers are not 200, or not JSON.
type reply struct {
	code   int
	reason string // X-Consul-Reason
	text   string // plain; JSON of value where empty
	value  any
	raw    []byte // JSON that is ready
}

// routes are what is served, in the order of Consul's documentation.
func (s *Server) routes() {
	mux := http.NewServeMux()
	s.pages = hostcheck.Hosts{Names: s.cfg.Hosts, Key: "consul.hosts", Domain: s.cfg.Kubernetes, Log: s.often}.Handler(mux)
	mux.HandleFunc("/", s.unknown)
	for path, e := range map[string]endpoint{
		"/v1/agent/self":                 (*request).agentSelf,
		"/v1/agent/version":              (*request).agentVersion,
		"/v1/agent/members":              (*request).agentMembers,
		"/v1/agent/services":             (*request).agentServices,
		"/v1/agent/service/":             (*request).agentService,
		"/v1/agent/checks":               (*request).agentChecks,
		"/v1/agent/health/service/id/":   (*request).agentHealthByID,
		"/v1/agent/health/service/name/": (*request).agentHealthByName,
		"/v1/catalog/datacenters":        (*request).catalogDatacenters,
		"/v1/catalog/nodes":              (*request).catalogNodes,
		"/v1/catalog/services":           (*request).catalogServices,
		"/v1/catalog/service/":           (*request).catalogService,
		"/v1/catalog/node/":              (*request).catalogNode,
		"/v1/catalog/node-services/":     (*request).catalogNodeServices,
		"/v1/health/node/":               (*request).healthNode,
		"/v1/health/checks/":             (*request).healthChecks,
		"/v1/health/service/":            (*request).healthService,
		"/v1/health/state/":              (*request).healthState,
		"/v1/status/leader":              (*request).statusLeader,
		"/v1/status/peers":               (*request).statusPeers,
	} {
		mux.HandleFunc(path, s.handler(http.MethodGet, path, e))
	}
	for path, e := range map[string]endpoint{
		"/v1/agent/service/register":     (*request).registerService,
		"/v1/agent/service/deregister/":  (*request).deregisterService,
		"/v1/agent/service/maintenance/": (*request).maintainService,
		"/v1/agent/check/register":       (*request).registerCheck,
		"/v1/agent/check/deregister/":    (*request).deregisterCheck,
		"/v1/agent/check/pass/":          (*request).passCheck,
		"/v1/agent/check/warn/":          (*request).warnCheck,
		"/v1/agent/check/fail/":          (*request).failCheck,
		"/v1/agent/check/update/":        (*request).updateCheck,
		"/v1/catalog/register":           (*request).catalogWrite,
		"/v1/catalog/deregister":         (*request).catalogWrite,
	} {
		mux.HandleFunc(path, s.handler(http.MethodPut, path, e))
	}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	to := &recorder{ResponseWriter: w}
	defer func() { s.metrics.answered(q.URL.Path, to.code) }()
	q.Body = http.MaxBytesReader(w, q.Body, mostBody) // which closes what net/http's own w has
	w = to
	// It stands until the body has been read whole, which net/http does to the end of those
	// that nobody here reads.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	if strings.ContainsFunc(q.URL.Path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		w.WriteHeader(http.StatusBadRequest) // as Consul, which says nothing more
		return
	}
	s.pages.ServeHTTP(w, q)
}

// unknown answers for what is not served.
func (s *Server) unknown(w http.ResponseWriter, q *http.Request) {
	text := "Invalid URL path: if attempting to use the HTTP API, ensure the path starts with '/v1/'\n"
	if strings.Contains(q.URL.Path, "/v1/") {
		text = "Invalid URL path: not a recognized HTTP API endpoint\n"
	}
	code := http.StatusNotFound
	if q.URL.Path == "/" {
		code, text = http.StatusOK, "Consul Agent: UI disabled. To enable, set ui_config.enabled=true in the agent configuration and restart."
	}
	s.plain(w, code, text)
}

func (s *Server) plain(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	s.write(w, code, []byte(text))
}

// write writes an answer. Who does not read it holds a goroutine for a while, and no more.
func (s *Server) write(w http.ResponseWriter, code int, body []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.WriteHeader(code)
	_, _ = w.Write(body) // who asked is gone otherwise
}

// handler is an endpoint as net/http wants it.
func (s *Server) handler(method, path string, e endpoint) http.HandlerFunc {
	allow := http.MethodOptions + "," + method
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Consul-Default-Acl-Policy", "deny")
		query, err := url.ParseQuery(r.URL.RawQuery)
		switch {
		case err != nil:
			s.plain(w, http.StatusInternalServerError, "")
			return
		case r.Method == http.MethodOptions:
			w.Header().Set("Allow", allow)
			w.Header().Set("Content-Type", "application/json")
			s.write(w, http.StatusOK, nil)
			return
		case r.Method != method:
			w.Header().Set("Allow", allow)
			s.plain(w, http.StatusMethodNotAllowed, "method "+r.Method+" not allowed")
			return
		}
		q := &request{s: s, http: r, header: w.Header(), query: query, path: strings.TrimPrefix(r.URL.Path, path)}
		if method == http.MethodGet { // whose body is nobody's concern, and who may wait for long
			_, err = io.Copy(io.Discard, r.Body)
		} else {
			q.body, err = io.ReadAll(r.Body)
		}
		if err == nil {
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // who asks may wait for the answer
		} else if !errors.As(err, &q.large) {
			s.plain(w, http.StatusBadRequest, "Request body could not be read: "+err.Error())
			return
		}
		value, err := e(q)
		if err != nil {
			q.failed()
		}
		s.answer(w, r, value, err)
	}
}

// answer writes what an endpoint returned.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, value any, err error) {
	if err != nil {
		if r.Context().Err() != nil {
			return // nobody is there any more
		}
		code := http.StatusInternalServerError
		var api *apiError
		if errors.As(err, &api) {
			code = api.code
		}
		s.plain(w, code, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	full, ok := value.(*reply)
	switch {
	case value == nil:
		s.write(w, http.StatusOK, nil)
		return
	case !ok:
		full = &reply{code: http.StatusOK, value: value}
	}
	if full.reason != "" {
		w.Header().Set("X-Consul-Reason", full.reason)
	}
	body := full.raw
	switch {
	case full.text != "":
		w.Header().Set("Content-Type", "text/plain")
		body = []byte(full.text)
	case body == nil:
		if body, err = json.Marshal(full.value); err != nil {
			s.plain(w, http.StatusInternalServerError, err.Error())
			return
		}
	}
	if r.URL.Query().Has("pretty") && full.text == "" {
		body = pretty(body)
	}
	s.write(w, full.code, body)
}

// decode reads a body of JSON strictly.
func (q *request) decode(into any) error {
	if q.large != nil {
		return &apiError{http.StatusRequestEntityTooLarge, "Request body too large: at most 524288 bytes fit"}
	}
	d := json.NewDecoder(bytes.NewReader(q.body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return badRequest("Request decode failed: %v", err)
	}
	return nil
}
