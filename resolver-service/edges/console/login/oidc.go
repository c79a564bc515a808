package login

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/isthmus-mesh/isthmus/internal/settings"
)

const (
	callbackPath = "/login/callback"
	longestLife  = 12 * time.Hour // of a session
	idleLife     = 2 * time.Hour
	loginLife    = 10 * time.Minute // of an attempt to sign in
	mostLogins   = 10_000           // attempts at once
	askingLimit  = 10 * time.Second // for an answer of the provider
)

// Config is about a gate that asks an OpenID Connect provider who somebody is.
type Config struct {
	URL          string           // the console's own, as browsers see it; the provider must know URL/login/callback
	Issuer       string           // the provider's, exactly as its tokens have it
	ClientID     string           // of the console, at the provider
	ClientSecret *settings.Secret // read for each login; nil: a public client, with PKCE alone
	CAFile       string           // roots that the provider's certificate chains to; "": the system's
	Scopes       []string         // default: openid, profile, email, groups
	NameClaim    string           // of the person; default: email unless unverified, preferred_username, sub
	GroupsClaim  string           // default: groups
	Groups       Groups
	// Life is how long a session lasts; 8 hours if 0, at most 12. The provider is not asked again
	// meanwhile: whoever loses a group there keeps its rights here until then. After 2 hours without
	// a request it ends, too. One signs in again then.
	Life time.Duration
}

// Groups are those whose members have a right; "*" is everybody that the provider lets in. The
// rights to write and to link have the right to read in them.
type Groups struct{ Read, Write, Link []string }

// login is the door of an OpenID Connect provider.
type login struct {
	*Gate
	config   Config
	client   *http.Client
	attempts sessions[attempt]
	ctx      context.Context // ends requests to the provider
	asking   singleflight.Group
	found    atomic.Pointer[oidc.Provider] // nil until the provider has answered
}

// attempt is one try to sign in, between the two requests of it.
type attempt struct{ verifier, nonce, to string }

// NewOIDC makes a gate that sends people to their OpenID Connect provider: authorization code, with
// PKCE. The provider is asked at the first login, so it may be away before. The context ends
// requests to it.
func NewOIDC(ctx context.Context, c Config, log *slog.Logger) (*Gate, error) {
	l, err := newLogin(ctx, c, log)
	if err != nil {
		return nil, err
	}
	return l.Gate, nil
}

func newLogin(ctx context.Context, c Config, log *slog.Logger) (*login, error) {
	g, err := newGate(c.URL, log)
	if err != nil {
		return nil, err
	}
	if err := c.complete(); err != nil {
		return nil, err
	}
	roots, err := (&settings.TLS{CA: c.CAFile}).Client()
	if err != nil {
		return nil, fmt.Errorf("roots of the provider: %w", err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig, transport.DialTLSContext = roots.Config(), roots.Dialing(transport.DialContext)
	transport.DisableKeepAlives = true // logins are rare
	l := &login{Gate: g, config: c, ctx: ctx, client: &http.Client{Transport: transport, Timeout: askingLimit}}
	l.attempts.most, l.attempts.life, l.attempts.idle = mostLogins, loginLife, loginLife
	g.sessions.life, g.sessions.idle = c.Life, idleLife
	g.doors = map[string]http.HandlerFunc{"/login": l.begin, callbackPath: l.finish}
	g.stranger = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/login?"+url.Values{"to": {r.URL.RequestURI()}}.Encode(), http.StatusSeeOther)
	}
	return l, nil
}

// Check returns the mistakes in a configuration. It asks nobody.
func (c Config) Check() error { return c.complete() }

// complete checks a configuration, and fills in what it leaves out.
func (c *Config) complete() error {
	issuer, err := url.Parse(c.Issuer)
	switch {
	case err != nil || issuer.Hostname() == "" || issuer.User != nil || issuer.RawQuery != "" || issuer.Fragment != "":
		return errors.New("the issuer is not of the form https://login.example.org; write it as the provider's tokens have it")
	case issuer.Scheme != "https" && (issuer.Scheme != "http" || !loopback(issuer.Hostname())):
		return fmt.Errorf("the issuer %s: beyond loopback it must begin with https://", c.Issuer)
	case c.ClientID == "":
		return errors.New("the client's id is missing; register the console at the provider")
	case len(c.Groups.Read)+len(c.Groups.Write)+len(c.Groups.Link) == 0:
		return errors.New(`no group may read; name groups, or "*" for everybody that the provider lets in`)
	case c.Life < 0 || c.Life > longestLife:
		return fmt.Errorf("a session of %v; at most %v", c.Life, longestLife)
	}
	if c.Life == 0 {
		c.Life = 8 * time.Hour
	}
	if len(c.Scopes) == 0 {
		c.Scopes = []string{oidc.ScopeOpenID, "profile", "email", "groups"}
	}
	if !slices.Contains(c.Scopes, oidc.ScopeOpenID) {
		return errors.New("the scopes lack openid, without which there is no login")
	}
	if c.GroupsClaim == "" {
		c.GroupsClaim = "groups"
	}
	if _, err := (&settings.TLS{CA: c.CAFile}).Client(); err != nil {
		return fmt.Errorf("roots of the provider: %w", err)
	}
	return c.ClientSecret.Check()
}

// provider is what the provider says of itself. It is asked until it has answered once, by one
// request at a time.
func (l *login) provider() (*oidc.Provider, error) {
	if p := l.found.Load(); p != nil {
		return p, nil
	}
	p, err, _ := l.asking.Do("", func() (any, error) {
		p, err := oidc.NewProvider(oidc.ClientContext(l.ctx, l.client), l.config.Issuer)
		if err == nil {
			l.found.Store(p)
		}
		return p, err
	})
	return p.(*oidc.Provider), err
}

// oauth is the console as the provider's client.
func (l *login) oauth(p *oidc.Provider) (*oauth2.Config, error) {
	secret, err := l.config.ClientSecret.Read()
	if err != nil {
		return nil, err
	}
	at := p.Endpoint()
	at.AuthStyle = oauth2.AuthStyleInParams
	var says struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	// Without a list, a provider takes what the standard has as default. One try decides: a code
	// works once.
	if err := p.Claims(&says); err == nil && secret != "" && (len(says.Methods) == 0 || slices.Contains(says.Methods, "client_secret_basic")) {
		at.AuthStyle = oauth2.AuthStyleInHeader
	}
	return &oauth2.Config{ClientID: l.config.ClientID, ClientSecret: secret, Endpoint: at,
		RedirectURL: l.url.String() + callbackPath, Scopes: l.config.Scopes}, nil
}
