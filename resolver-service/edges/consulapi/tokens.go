package consulapi

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// tokens maps tokens to callers. It is immutable. It holds no token but its HMAC under a key of
// this process: nobody outside knows it, so the time of a lookup tells nothing of a token.
type tokens struct {
	key     [sha256.Size]byte
	holders map[[sha256.Size]byte]*caller
}

// reread is how often tokens are read again, so that one can be exchanged.
const reread = 10 * time.Second

func (t *tokens) sum(token string) (sum [sha256.Size]byte) {
	mac := hmac.New(sha256.New, t.key[:])
	mac.Write([]byte(token))
	mac.Sum(sum[:0])
	return sum
}

// holder is the caller that a token belongs to.
func (t *tokens) holder(token string) (*caller, bool) {
	c, ok := t.holders[t.sum(token)]
	return c, ok
}

// readTokens reads every token. A token that two apps have is refused.
func (s *Server) readTokens() (*tokens, error) {
	t := &tokens{holders: make(map[[sha256.Size]byte]*caller, len(s.cfg.Tokens))}
	if _, err := rand.Read(t.key[:]); err != nil {
		return nil, fmt.Errorf("consul: %w", err)
	}
	for n := range s.cfg.Tokens {
		secret, err := s.cfg.Tokens[n].Token.Read()
		if err != nil {
			return nil, fmt.Errorf("consul.tokens[%d].token of %s: %w", n, s.cfg.Tokens[n].App, err)
		}
		app, _ := catalog.ParseApp(s.cfg.Tokens[n].App) // was checked
		sum, holder := t.sum(secret), s.callers[app]
		if other := t.holders[sum]; other != nil && other != holder {
			return nil, fmt.Errorf("consul.tokens[%d].token: %s and %s have the same token; give each its own", n, other.app, app)
		}
		t.holders[sum] = holder
	}
	return t, nil
}

// followTokens reads the tokens again and again until ctx ends. While one can't be read,
// those of before hold.
func (s *Server) followTokens(ctx context.Context) {
	for live.Sleep(ctx, reread) {
		t, err := s.readTokens()
		if err != nil {
			if s.unread.Swap(&err) == nil {
				s.log.Warn("tokens can't be read again; those of before hold", "err", err)
			}
			continue
		}
		s.tokens.Store(t)
		if s.unread.Swap(nil) != nil {
			s.log.Info("tokens can be read again")
		}
	}
}

// tokenOf is the token that a request carries, in one of the three places that Consul
// looks at.
func tokenOf(q *http.Request) string {
	if token := q.URL.Query().Get("token"); token != "" {
		return token
	}
	if token := q.Header.Get("X-Consul-Token"); token != "" {
		return token
	}
	scheme, value, ok := strings.Cut(q.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	value, _, _ = strings.Cut(strings.TrimSpace(value), " ")
	return value
}

var errNoSuchToken = &apiError{http.StatusForbidden, "ACL not found"}

// holder is the caller that a request comes from.
func (s *Server) holder(q *http.Request) (*caller, error) {
	token := tokenOf(q)
	if token == "" {
		return s.anonymous, nil
	}
	if c, ok := s.tokens.Load().holder(token); ok {
		return c, nil
	}
	return nil, errNoSuchToken
}
