package actors

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// Tokens are how a bridge and its sidecar know each other, on a machine or in a pod with others:
// those of Dapr. The holder of the first is believed about the caller, and the holder of the second
// may call other clusters' bridges as this one.
type Tokens struct {
	app string // the sidecar shows it to the bridge
	api string // the bridge shows it to the sidecar
}

// Names of Dapr's, of the tokens in the environment and of the header that carries either.
const (
	appToken    = "APP_API_TOKEN"
	apiToken    = "DAPR_API_TOKEN"
	tokenHeader = "Dapr-Api-Token"
)

// errTokens is about a sidecar that somebody else starts.
var errTokens = errors.New(appToken + " and " + apiToken + " have to be in the environment of the bridge, and of its sidecar the same: without them, " +
	"any process that reaches their ports could call actors in any app's name; " +
	"in Kubernetes, name the Secrets in dapr.io/app-token-secret and dapr.io/api-token-secret (see docs/how-to/actors.md)")

// TokensFor are the tokens in the environment. A bridge that starts its sidecar itself makes those
// that are not there.
func TokensFor(starts bool) (Tokens, error) {
	t := Tokens{app: os.Getenv(appToken), api: os.Getenv(apiToken)}
	if starts {
		return Tokens{app: cmp.Or(t.app, rand.Text()), api: cmp.Or(t.api, rand.Text())}, nil
	}
	if t.app == "" || t.api == "" {
		return Tokens{}, errTokens
	}
	return t, nil
}

// environment is that of a sidecar which has the tokens. It never goes into its arguments, which
// everybody on the machine may read.
func (t Tokens) environment() []string {
	return append(os.Environ(), appToken+"="+t.app, apiToken+"="+t.api)
}

// show adds the token that the sidecar asks for.
func (t Tokens) show(h http.Header) { h.Set(tokenHeader, t.api) }

// shownBy tells whether the sidecar makes a request.
func (t Tokens) shownBy(r *http.Request) bool {
	return t.app != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get(tokenHeader)), []byte(t.app)) == 1
}

// errOpen is about a sidecar that takes calls of everybody.
var errOpen = errors.New("takes calls without a token, so any process that reaches it could call actors in any app's name; give it " + apiToken +
	", in Kubernetes by the annotation dapr.io/api-token-secret, as the bridge has it")

// refusesOthers waits until a sidecar answers somebody without a token, and fails unless it refuses.
func refusesOthers(ctx context.Context, daprd string) error {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+daprd+"/v1.0/metadata", nil)
		if err != nil {
			return err
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
			if res.StatusCode != http.StatusUnauthorized {
				return fmt.Errorf("the sidecar at %s %w", daprd, errOpen)
			}
			return nil
		}
		if !live.Sleep(ctx, time.Second) {
			return nil
		}
	}
}
