// Package identity gives a process its SPIFFE identity in Dapr's form, spiffe://<trust
// domain>/ns/<namespace>/<app-id>. It reads it from files or requests it from Dapr's Sentry,
// renews it, and makes TLS and gRPC credentials from it.
//
// Each handshake uses the current certificate and roots, so a renewal or a rotation needs no
// reconnect and no restart. Resolver services of other clusters may be checked against roots of
// their own, which count for nobody else: [Source.SetPeers].
package identity

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// SystemNamespace is the default namespace of Isthmus' own apps.
const SystemNamespace = catalog.DefaultsNamespace

// cliAppID is the app-id of the command line.
const cliAppID = "isthmus-cli"

// serviceAppID is the prefix of a resolver service's app-id, before the cluster's name.
const serviceAppID = "isthmus-"

// ServiceApp is the app of a cluster's resolver service, so that its certificate names its
// cluster. An empty namespace is [SystemNamespace].
func ServiceApp(namespace, cluster string) catalog.App {
	return systemApp(namespace, serviceAppID+cluster)
}

// CLIApp is the app of an operator's command line. An empty namespace is [SystemNamespace].
func CLIApp(namespace string) catalog.App { return systemApp(namespace, cliAppID) }

// ServiceCluster returns the cluster whose resolver service the app is, if it is one. An empty
// namespace is [SystemNamespace].
func ServiceCluster(namespace string, app catalog.App) (cluster string, ok bool) {
	cluster, ok = strings.CutPrefix(app.ID, serviceAppID)
	if !ok || app != ServiceApp(namespace, cluster) || app == CLIApp(namespace) {
		return "", false
	}
	return cluster, catalog.CheckCluster(cluster) == nil
}

func systemApp(namespace, id string) catalog.App {
	if namespace == "" {
		namespace = SystemNamespace
	}
	return catalog.App{Namespace: namespace, ID: id}
}

// ID is an app's identity in a trust domain.
type ID struct {
	TrustDomain string
	App         catalog.App
}

// String is the SPIFFE ID, "spiffe://<trust domain>/ns/<namespace>/<app-id>".
func (id ID) String() string {
	return "spiffe://" + id.TrustDomain + "/ns/" + id.App.Namespace + "/" + id.App.ID
}

// CheckTrustDomain checks the name of a SPIFFE trust domain.
func CheckTrustDomain(s string) error {
	td, err := spiffeid.TrustDomainFromString(s)
	if err == nil && td.Name() != s {
		err = fmt.Errorf("want the name alone, %s", td.Name())
	}
	if err != nil {
		return fmt.Errorf("trust domain %q: %w", s, err)
	}
	return nil
}

func fromURI(uri *url.URL) (ID, error) {
	id, err := spiffeid.FromURI(uri)
	if err != nil {
		return ID{}, fmt.Errorf("SPIFFE ID %q: %w", uri, err)
	}
	return FromSPIFFE(id)
}

// FromSPIFFE reads a SPIFFE ID in Dapr's form.
func FromSPIFFE(id spiffeid.ID) (ID, error) {
	path, ok := strings.CutPrefix(id.Path(), "/ns/")
	if !ok {
		return ID{}, fmt.Errorf("SPIFFE ID %q is no Dapr app; want spiffe://<trust domain>/ns/<namespace>/<app-id>", id)
	}
	app, err := catalog.ParseApp(path)
	if err != nil {
		return ID{}, fmt.Errorf("SPIFFE ID %q: %w", id, err)
	}
	return ID{TrustDomain: id.TrustDomain().Name(), App: app}, nil
}

// GuestDomain makes the trust domain of a guest of a cluster, by the one of that cluster's service.
// It is another each time, so a guest's certificates are not those of the next guest of its name.
func GuestDomain(host, guest string) string {
	return strings.ToLower(rand.Text()[:8]) + "." + guest + guestDomains + host
}

// IsGuestDomain tells whether a trust domain is one of a guest of a cluster, and so no domain of its
// own apps.
func IsGuestDomain(host, domain string) bool { return strings.HasSuffix(domain, guestDomains+host) }

const guestDomains = ".guest."
