// Package trustbundle follows a ConfigMap with roots: the one in which Dapr's Sentry keeps its own
// in Kubernetes, and the one in which Kubernetes publishes those of client certificates.
package trustbundle

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// Config names the ConfigMap, which is in Sentry's namespace and has the roots in its key ca.crt.
type Config struct {
	ConfigMap  string `yaml:"configMap"`          // "dapr-trust-bundle", unless Dapr says otherwise
	Kubeconfig string `yaml:"kubeconfig" file:""` // empty: the pod's service account
	Context    string `yaml:"context"`            // of the kubeconfig; empty: its current one
}

// Identity says who a process is, and where Sentry keeps its roots in Kubernetes.
type Identity struct {
	identity.Config `yaml:",inline"`

	TrustAnchorsFrom *Config `yaml:"trustAnchorsFrom"`
}

// Followed is the Config with the trust anchors that are to be followed.
func (i Identity) Followed(log *slog.Logger) (identity.Config, error) {
	c := i.Config
	if i.TrustAnchorsFrom == nil {
		return c, nil
	}
	if c.Sentry == nil {
		return c, &strict.Error{Path: "trustAnchorsFrom", What: "names Sentry's roots, and the identity is not from Sentry", Fix: "leave it out, or write identity: {sentry: {address: …}}"}
	}
	sentry := *c.Sentry
	anchors, err := New(*i.TrustAnchorsFrom, cmp.Or(sentry.Namespace, "default"), log)
	if err != nil {
		return c, strict.Below("trustAnchorsFrom", err)
	}
	sentry.Anchors = anchors
	c.Sentry = &sentry
	return c, nil
}

// bundleKey is the key of Sentry's ConfigMap with the roots.
const bundleKey = "ca.crt"

// Kubernetes publishes the roots of client certificates there, for what extends its API.
const (
	clientsNamespace = "kube-system"
	clientsConfigMap = "extension-apiserver-authentication"
	clientsKey       = "client-ca-file"
)

// maxBundle bounds the roots, in bytes of PEM: a ConfigMap has at most 1 MiB.
const maxBundle = 1 << 20

// Bundle follows that ConfigMap while [Bundle.Run] runs.
type Bundle struct {
	namespace, name, key string
	what                 string // the roots, in logs
	writer, rights, role string // for errors: what writes the key, and what gives the right to read it
	server               *apiserver.Server
	log                  *slog.Logger

	mu   sync.Mutex
	text []byte
	err  error // why there is no text, or none that is known to be current
	runs bool
}

// New reads the kubeconfig, or the pod's service account, and asks the API server nothing.
func New(c Config, namespace string, log *slog.Logger) (*Bundle, error) {
	if c.ConfigMap == "" {
		return nil, &strict.Error{Path: "configMap", What: "is missing", Fix: "write dapr-trust-bundle, which is Dapr's name for it"}
	}
	server, err := apiserver.New(apiserver.Config{Kubeconfig: c.Kubeconfig, Context: c.Context})
	if err != nil {
		return nil, err
	}
	return &Bundle{
		namespace: namespace, name: c.ConfigMap, key: bundleKey, what: "trust anchors", writer: "name the one that Sentry writes its roots into, and its namespace",
		rights: "the Role isthmus-trust-bundle in deploy/kubernetes/service.yaml", role: "isthmus-trust-bundle", server: server, log: log,
	}, nil
}

// OfClients is for the roots of Kubernetes' client certificates. It asks nothing either.
func OfClients(c apiserver.Config, log *slog.Logger) (*Bundle, error) {
	server, err := apiserver.New(c)
	if err != nil {
		return nil, err
	}
	return &Bundle{
		namespace: clientsNamespace, name: clientsConfigMap, key: clientsKey, what: "roots of client certificates",
		writer: "an API server with --client-ca-file does", rights: "the Role extension-apiserver-authentication-reader of Kubernetes", role: "extension-apiserver-authentication-reader", server: server, log: log,
	}, nil
}

// String names the ConfigMap.
func (b *Bundle) String() string { return "ConfigMap " + b.namespace + "/" + b.name }

func (b *Bundle) collection() apiserver.Collection {
	return apiserver.Collection{
		Path:  "/api/v1/namespaces/" + url.PathEscape(b.namespace) + "/configmaps",
		Query: url.Values{"fieldSelector": {"metadata.name=" + b.name}},
	}
}

// Account is what following takes in Kubernetes.
func (b *Bundle) Account() apiserver.Account {
	role := apiserver.Role{Name: b.role}
	for _, verb := range []string{"list", "watch"} {
		role.Rights = append(role.Rights, apiserver.Right{Verb: verb, Resource: "configmaps", Namespace: b.namespace, Name: b.name})
	}
	return apiserver.Account{Server: b.server, Roles: []apiserver.Role{role}}
}

// Close closes the connections of a Bundle that does not run.
func (b *Bundle) Close() { b.server.Close() }

// Retries of a watch that broke.
const (
	firstRewatch = time.Second
	lastRewatch  = 15 * time.Second
)

// Run follows the ConfigMap until ctx ends. The last roots stay meanwhile.
func (b *Bundle) Run(ctx context.Context) {
	defer b.server.Close()
	b.mu.Lock()
	b.runs = true
	b.mu.Unlock()
	for failures := 0; ctx.Err() == nil; failures++ {
		at, err := b.list(ctx)
		if err == nil {
			failures = 0
			err = b.server.Follow(ctx, b.collection(), at, apiserver.Follower{Take: b.take})
			if ctx.Err() == nil && !apiserver.Expired(err) {
				b.log.Warn(b.what+" are not followed now; reading them again", "err", b.advise(err))
			}
		}
		live.Sleep(ctx, live.Jitter(live.Backoff(firstRewatch, lastRewatch, failures)))
	}
}

// listWithin is how long the API server may take. One that is silent must not hold up what needs the
// roots without a word.
var listWithin = 10 * time.Second // tests don't wait

// list reads the ConfigMap once.
func (b *Bundle) list(ctx context.Context) (at string, err error) {
	limited, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	items, at, err := b.server.List(limited, b.collection())
	switch {
	case err != nil && limited.Err() != nil && ctx.Err() == nil:
		err = fmt.Errorf("%s: the API server gave no answer within %s; asking again", b, listWithin)
	case err != nil:
		err = b.advise(err)
	case len(items) == 0:
		err = fmt.Errorf("%s is not there; %s", b, b.writer)
	default:
		_, err = b.take(items[0], false)
		return at, err
	}
	b.set(nil, err)
	return at, err
}

// take takes the ConfigMap as it is now. What has no roots leaves those of before.
func (b *Bundle) take(object json.RawMessage, deleted bool) (version string, err error) {
	var m struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Data map[string]string `json:"data"`
	}
	if err := json.Unmarshal(object, &m); err != nil {
		return "", err
	}
	text := m.Data[b.key]
	switch {
	case deleted:
		b.set(nil, fmt.Errorf("%s was deleted", b))
	case text == "":
		b.set(nil, fmt.Errorf("%s has no key %s; %s", b, b.key, b.writer))
	case len(text) > maxBundle:
		b.set(nil, fmt.Errorf("%s, key %s: %d bytes; at most %d are read", b, b.key, len(text), maxBundle))
	default:
		b.set([]byte(text), nil)
	}
	return m.Metadata.ResourceVersion, nil
}

func (b *Bundle) set(text []byte, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err = err; err == nil {
		b.text = text
	} else if b.text != nil && b.runs {
		b.log.Warn(b.what+" can't be read; those of before stay", "err", err)
	}
}

// Read returns the roots in PEM as they were heard last. Before Run has heard them, and without it,
// it asks.
func (b *Bundle) Read(ctx context.Context) ([]byte, error) {
	b.mu.Lock()
	text, ask := b.text, !b.runs || b.text == nil && b.err == nil
	b.mu.Unlock()
	if ask {
		if _, err := b.list(ctx); err != nil && text == nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.text == nil {
		return nil, b.err
	}
	return b.text, nil
}

// advise adds what to do to a refusal of the API server.
func (b *Bundle) advise(err error) error {
	err = fmt.Errorf("%s: %w", b, err)
	if code := apiserver.Code(err); code == http.StatusForbidden {
		return fmt.Errorf("%w; give the account the verbs list and watch on it, as %s does", err, b.rights)
	}
	return err
}
