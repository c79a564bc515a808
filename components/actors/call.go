package actors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// bridgePath is what bridges call each other by, as a method of service invocation.
const bridgePath = "/isthmus/actors"

// The headers between bridges. Names in them are escaped as a part of a path.
const (
	headerPrefix  = "Isthmus-"
	typeHeader    = headerPrefix + "Actor-Type"
	idHeader      = headerPrefix + "Actor-Id"
	methodHeader  = headerPrefix + "Actor-Method"
	callerHeader  = headerPrefix + "Actor-Caller"  // namespace/app-id, by the calling bridge's word
	bridgedHeader = headerPrefix + "Actor-Bridged" // the cluster that the call comes from: it passes no other bridge
	answerHeader  = headerPrefix + "Actor-Answer"  // the answer is the actor's own, or Dapr's for it
)

// call is one call of an actor.
type call struct{ typ, id, method string }

func (c call) String() string { return c.typ + "/" + c.id }

// path is the call's path in the actor API of a sidecar.
func (c call) path() string {
	parts := strings.Split(c.method, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return "/v1.0/actors/" + url.PathEscape(c.typ) + "/" + url.PathEscape(c.id) + "/method/" + strings.Join(parts, "/")
}

// passOn takes a call of an actor that another cluster owns, and passes it on to that one's bridge.
func (b *Bridge) passOn(w http.ResponseWriter, r *http.Request) {
	c := call{r.PathValue("type"), r.PathValue("id"), r.PathValue("method")}
	caller, err := identity.ParseCaller(r.Header.Get(identity.CallerHeader))
	if err != nil {
		b.refuse(w, c, &catalog.Refusal{Outcome: catalog.Denied, Reason: "the sidecar does not say who calls; the bridge needs mTLS and the middleware middleware.http.isthmus.caller: " + err.Error()})
		return
	}
	view, _ := b.view.Load()
	if from := r.Header.Get(bridgedHeader); from != "" {
		b.refuse(w, c, &catalog.Refusal{Outcome: catalog.Unavailable, Reason: fmt.Sprintf("cluster %s has passed the call on to %s as to the owner, and the actor is not here; a call passes one pair of bridges", from, view.Cluster)})
		return
	}
	domain, known := b.identity.Domain()
	own := known && (domain == "" || domain == caller.TrustDomain) || slices.Contains(view.Domains, caller.TrustDomain)
	owner, refusal := view.Lead(own, catalog.Principal{Domain: caller.TrustDomain, App: caller.App}, c.typ)
	if refusal != nil {
		b.refuse(w, c, refusal)
		return
	}
	header := forwarded(r.Header)
	header.Set(typeHeader, url.PathEscape(c.typ))
	header.Set(idHeader, url.PathEscape(c.id))
	header.Set(methodHeader, url.PathEscape(c.method))
	header.Set(callerHeader, caller.App.String())
	to := "/v1.0/invoke/" + catalog.BridgeApp("", owner).ID + "/method" + bridgePath
	res, err := b.ask(w, http.MethodPost, to, r, header)
	if err != nil {
		b.fail(w, r, c, owner, err)
		return
	}
	defer res.Body.Close()
	if res.Header.Get(answerHeader) == "" {
		b.refuse(w, c, &catalog.Refusal{Outcome: catalog.Unavailable, Reason: fmt.Sprintf("actor %s in cluster %s: %s", c, owner, explained(res))})
		return
	}
	b.answer(w, res)
}

// takeIn takes a call from another cluster's bridge, and makes it here.
func (b *Bridge) takeIn(w http.ResponseWriter, r *http.Request) {
	c, caller, err := parseCall(r.Header)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set(answerHeader, "bridge")
	by, err := identity.ParseCaller(r.Header.Get(identity.CallerHeader))
	if err != nil {
		b.refuse(w, c, &catalog.Refusal{Outcome: catalog.Denied, Reason: "the sidecar does not say who calls; the bridge needs mTLS and the middleware middleware.http.isthmus.caller: " + err.Error()})
		return
	}
	view, _ := b.view.Load()
	if refusal := view.Admit(catalog.Principal{Domain: by.TrustDomain, App: by.App}, caller, c.typ); refusal != nil {
		b.refuse(w, c, refusal)
		return
	}
	from, _ := by.App.BridgeCluster()
	header := forwarded(r.Header)
	header.Set(bridgedHeader, from)
	header.Set(callerHeader, caller.String())
	res, err := b.ask(w, http.MethodPut, c.path(), r, header)
	if err != nil {
		b.fail(w, r, c, view.Cluster, err)
		return
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		b.answer(w, res)
		return
	}
	b.answerError(w, c, res)
}

// parseCall reads what the calling bridge says.
func parseCall(h http.Header) (c call, caller catalog.App, err error) {
	var errs [4]error
	c.typ, errs[0] = url.PathUnescape(h.Get(typeHeader))
	c.id, errs[1] = url.PathUnescape(h.Get(idHeader))
	c.method, errs[2] = url.PathUnescape(h.Get(methodHeader))
	caller, errs[3] = catalog.ParseApp(h.Get(callerHeader))
	if err := errors.Join(errs[:]...); err != nil {
		return c, caller, err
	}
	for _, part := range append(strings.Split(c.method, "/"), c.id) {
		if !isName(part) {
			return c, caller, fmt.Errorf("%.64q is no part of an actor's id or method that Dapr takes", part)
		}
	}
	return c, caller, catalog.CheckActorType(c.typ)
}

// isName tells whether Dapr takes a part of a path for a name: nothing leads out of it.
func isName(s string) bool {
	control := func(c rune) bool { return c < ' ' || c == 0x7f }
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, `#?/\`) && !strings.ContainsFunc(s, control)
}

// ask makes a request of the sidecar with the body of another, whose answer is w.
func (b *Bridge) ask(w http.ResponseWriter, verb, path string, r *http.Request, header http.Header) (*http.Response, error) {
	target := "http://" + b.cfg.Daprd + path
	if r.URL.RawQuery != "" {
		target += "?" + r.URL.RawQuery
	}
	req, err := http.NewRequestWithContext(r.Context(), verb, target, r.Body)
	if err != nil {
		return nil, err
	}
	// Otherwise the server reads the rest of the body when the answer begins. The client, which looks for
	// the body's end, then meets an error, and cuts the answer off.
	_ = http.NewResponseController(w).EnableFullDuplex() // with HTTP/2 it is so anyway
	req.Header, req.ContentLength = header, r.ContentLength
	b.tokens.show(req.Header)
	return b.client.Do(req)
}

// dropped are headers that belong to one hop, or to a sidecar and its own app.
var dropped = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length",
	tokenHeader, "Dapr-App-Id", "Dapr-Caller-App-Id", "Dapr-Caller-Namespace", "Dapr-Callee-App-Id", "Dapr-Api-Call", "X-Dapr-Remote",
}

// forwarded are the headers that go on.
func forwarded(from http.Header) http.Header {
	to := maps.Clone(from)
	for _, name := range dropped {
		to.Del(name)
	}
	for name := range to {
		if strings.HasPrefix(name, headerPrefix) {
			delete(to, name)
		}
	}
	return to
}

// answer passes an answer back.
func (b *Bridge) answer(w http.ResponseWriter, res *http.Response) {
	answered := res.Header.Get(answerHeader)
	maps.Copy(w.Header(), forwarded(res.Header))
	if answered == "" {
		answered = "actor"
	}
	w.Header().Set(answerHeader, answered)
	if res.ContentLength > 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(res.ContentLength, 10))
	}
	w.WriteHeader(res.StatusCode)
	if _, err := io.Copy(w, res.Body); err != nil {
		panic(http.ErrAbortHandler) // so that nobody takes a part for all of it
	}
}

// appError is how Dapr's API tells of an answer of an actor's app that is not 200.
var appError = regexp.MustCompile(`(?s)error from actor service: \((\d{3})\) (.*)$`)

const (
	notFound = "actor method not found: "
	maxError = 4 << 20
)

// answerError passes an error of the actor API back, so that the calling side's sidecar says of it what
// this one would have said to a caller here.
func (b *Bridge) answerError(w http.ResponseWriter, c call, res *http.Response) {
	text := explained(res)
	if m := appError.FindStringSubmatch(text); m != nil {
		code, _ := strconv.Atoi(m[1]) // three digits
		w.Header().Set(answerHeader, "actor")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, m[2])
		return
	}
	if strings.Contains(text, notFound) {
		w.Header().Set(answerHeader, "actor")
		w.WriteHeader(http.StatusNotFound)
		return
	}
	b.refuse(w, c, &catalog.Refusal{Outcome: catalog.Unavailable, Reason: fmt.Sprintf("actor %s in its owner cluster %s: %s", c, b.cfg.Cluster, text)})
}

// explained is what a sidecar says of an error: the message of its JSON, or all of it.
func explained(res *http.Response) string {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxError))
	var said struct {
		Message string `json:"message"`
	}
	switch {
	case err != nil:
		return res.Status + ": " + err.Error()
	case json.Unmarshal(body, &said) == nil && said.Message != "":
		return said.Message
	}
	return res.Status + ": " + string(body)
}

// fail answers a call whose sidecar did not answer.
func (b *Bridge) fail(w http.ResponseWriter, r *http.Request, c call, cluster string, err error) {
	if r.Context().Err() != nil {
		return // the caller has gone
	}
	b.refuse(w, c, &catalog.Refusal{Outcome: catalog.Unavailable, Reason: fmt.Sprintf("actor %s in cluster %s: the sidecar of the bridge in cluster %s did not answer: %v", c, cluster, b.cfg.Cluster, err)})
}

// refuse answers a call that is not made, as Dapr's API answers errors.
func (b *Bridge) refuse(w http.ResponseWriter, c call, refusal *catalog.Refusal) {
	b.often.Warn(c.typ+refusal.Outcome.String(), "refused a call of an actor", "type", c.typ, "outcome", refusal.Outcome.String(), "why", refusal.Reason)
	code := http.StatusServiceUnavailable
	if refusal.Outcome == catalog.Denied {
		code = http.StatusForbidden
	}
	name := "ERR_ISTHMUS_" + strings.ToUpper(strings.ReplaceAll(refusal.Outcome.String(), " ", "_"))
	body, _ := json.Marshal(map[string]string{"errorCode": name, "message": refusal.Reason}) // of texts: no error
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
