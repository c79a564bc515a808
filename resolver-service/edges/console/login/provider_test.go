package login

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"
)

const (
	clientID     = "isthmus"
	clientSecret = "s3cret-of-the-console"
)

// provider is an OpenID Connect provider that can be made to issue what none should. Everybody who
// comes to it is ann.
type provider struct {
	*httptest.Server
	t       *testing.T
	key     *rsa.PrivateKey
	secret  string   // that it wants; "": a public client
	methods []string // by which a client may show it
	edit    func(claims map[string]any)
	sign    func(p *provider, claims map[string]any) string
	deny    string // an error in place of a code
	away    bool
	sent    []string // codes and tokens, which no log may have
	asked   int      // for its configuration

	mu    sync.Mutex
	asks  int                   // for a token
	codes map[string]url.Values // the requests that they answer
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{t: t, key: key, codes: map[string]url.Values{}, sign: (*provider).right}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", p.configuration)
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		p.json(w, 200, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: p.key.Public(), KeyID: "1", Algorithm: "RS256", Use: "sig"}}})
	})
	mux.HandleFunc("/auth", p.authorize)
	mux.HandleFunc("/token", p.token)
	p.Server = httptest.NewTLSServer(mux)
	t.Cleanup(p.Close)
	return p
}

// ca is a file with the root of the provider.
func (p *provider) ca() string {
	file := filepath.Join(p.t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		p.t.Fatal(err)
	}
	return file
}

func (p *provider) json(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

func (p *provider) configuration(w http.ResponseWriter, _ *http.Request) {
	p.asked++
	if p.away {
		http.Error(w, "no", http.StatusServiceUnavailable)
		return
	}
	says := map[string]any{"issuer": p.URL, "authorization_endpoint": p.URL + "/auth", "token_endpoint": p.URL + "/token",
		"jwks_uri": p.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256", "none", "HS256"}}
	if p.methods != nil {
		says["token_endpoint_auth_methods_supported"] = p.methods
	}
	p.json(w, 200, says)
}

func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("response_type") != "code" || q.Get("client_id") != clientID || q.Get("code_challenge_method") != "S256" {
		p.t.Errorf("asked to authorize %v", q)
	}
	answer := url.Values{"state": {q.Get("state")}}
	if p.deny != "" {
		answer.Set("error", p.deny)
	} else {
		code := random()
		p.mu.Lock()
		p.codes[code] = q
		p.sent = append(p.sent, code, q.Get("state"), q.Get("nonce"))
		p.mu.Unlock()
		answer.Set("code", code)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+answer.Encode(), http.StatusSeeOther)
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asks++
	code, verifier := r.PostFormValue("code"), r.PostFormValue("code_verifier")
	asked := p.codes[code]
	delete(p.codes, code)
	byBasic := len(p.methods) == 0 || p.methods[0] == "client_secret_basic"
	switch {
	case id != clientID || secret != p.secret || p.secret != "" && basic != byBasic:
		p.json(w, 401, map[string]string{"error": "invalid_client", "error_description": "not " + secret})
	case asked == nil || asked.Get("redirect_uri") != r.PostFormValue("redirect_uri") ||
		oauth2.S256ChallengeFromVerifier(verifier) != asked.Get("code_challenge"):
		p.json(w, 400, map[string]string{"error": "invalid_grant", "error_description": "no such code: " + code})
	default:
		claims := map[string]any{"iss": p.URL, "aud": clientID, "sub": "7", "nonce": asked.Get("nonce"), "email": "ann@example.org",
			"iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(), "groups": []string{"sre", "all"}}
		if p.edit != nil {
			p.edit(claims)
		}
		access, idToken := random(), p.sign(p, claims)
		p.sent = append(p.sent, access, verifier)
		if idToken != "" {
			p.sent = append(p.sent, idToken)
		}
		p.json(w, 200, map[string]any{"access_token": access, "token_type": "Bearer", "id_token": idToken})
	}
}

// right signs as a provider should.
func (p *provider) right(claims map[string]any) string {
	return p.signed(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: p.key, KeyID: "1"}}, claims)
}

func (p *provider) signed(key jose.SigningKey, claims map[string]any) string {
	text, _ := json.Marshal(claims)
	signer, err := jose.NewSigner(key, nil)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	jws, _ := signer.Sign(text)
	compact, _ := jws.CompactSerialize()
	return compact
}

// byAnother signs by a key that the provider does not publish.
func (p *provider) byAnother(claims map[string]any) string {
	key, _ := rsa.GenerateKey(rand.Reader, 2048)
	return p.signed(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, claims)
}

// bySecret signs by the client's secret, which a provider may list, and the console never takes.
func (p *provider) bySecret(claims map[string]any) string {
	return p.signed(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(clientSecret + strings.Repeat("-", 32))}, claims)
}

// unsigned is a token with the algorithm "none".
func (p *provider) unsigned(claims map[string]any) string {
	text, _ := json.Marshal(claims)
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(text) + "."
}
