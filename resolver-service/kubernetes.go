package resolverservice

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz/rbac"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
)

// Kubernetes says where the API server is that knows the callers of listen.kubernetes.
type Kubernetes struct {
	Kubeconfig string `yaml:"kubeconfig" file:""` // empty: the pod's service account
	Context    string `yaml:"context"`            // of the kubeconfig; empty: its current one
}

// exampleKubernetes is where listen.kubernetes is in the chart.
const exampleKubernetes = "127.0.0.1:7482"

// maxMetadata bounds what a caller says beside a request. A token of an identity provider may
// name hundreds of groups.
const maxMetadata = 64 << 10

// kubernetesEdge is for operators by Kubernetes' RBAC. They come through the API server's
// port-forward, which leads to the pod's loopback.
func (c *Config) kubernetesEdge() edge.Edge {
	return edge.Edge{
		Name: "kubernetes", Listen: edge.At("kubernetes", c.Listen.Kubernetes), Example: exampleKubernetes,
		Claim: edge.Claim{Default: 64, Part: 64}, Check: c.checkKubernetes,
	}
}

// checkKubernetes adds to the document what is wrong with the listener and its settings.
func (c *Config) checkKubernetes(doc *strict.Document) {
	at := c.Listen.Kubernetes
	if at != "" && !doc.Wrong("listen.kubernetes") && !edge.OnLoopback(at) {
		doc.Refuse("listen.kubernetes", at+" is not on loopback, and others could show it tokens that they have seen", "write "+exampleKubernetes+": kubectl port-forward and isthmus --kubeconfig lead there")
	}
	if at == "" && (c.Kubernetes != Kubernetes{}) {
		doc.Refuse("kubernetes", "is for listen.kubernetes, which is not there", "write listen: {kubernetes: "+exampleKubernetes+"}, or leave it out")
		return
	}
	if at == "" || doc.Wrong("kubernetes") {
		return
	}
	doc.Merge("kubernetes", apiserver.Config(c.Kubernetes).Look())
}

// kubernetesPart serves what verbs has.
func (s *Service) kubernetesPart() (edge.Part, error) {
	reviewer, err := rbac.New(s.cfg.Cluster, apiserver.Config(s.cfg.Kubernetes), s.log)
	if err != nil {
		return edge.Part{}, strict.Below("kubernetes", err)
	}
	s.accounts.add(reviewer)
	certificate, err := passingCertificate()
	if err != nil {
		return edge.Part{}, err
	}
	rules := rulesAt(atKubernetes)
	rules.admit = (&persons{reviewer: reviewer, access: s.access, every: time.Minute}).admit
	server := s.resolver.newServer(rules, credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequestClientCert,
	}), append(trustedOptions(), grpc.MaxHeaderListSize(maxMetadata))...)
	listener := s.connections.bound("kubernetes", s.listeners.TCP("kubernetes"), bounded.Bounds{Max: s.listeners.Bounds().Of["kubernetes"]})
	serve := func(ctx context.Context) error { return edge.ServeGRPC(ctx, listener, server) }
	return edge.Part{Run: edge.Together(reviewer.Run, serve)}, nil
}

// passingCertificate is for this life of the process. Nobody checks it: who calls has found the
// pod by the API server, which they have checked, and TLS is there for their own certificate.
func passingCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "isthmus"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// persons lets people in by Kubernetes' RBAC.
type persons struct {
	reviewer *rbac.Reviewer
	access   *authorizer
	every    time.Duration // how often a stream's right to go on is asked for
}

// admit is that of rules.
func (p *persons) admit(ctx context.Context, method string, request any) (context.Context, error) {
	verb, err := verbOf(method, request)
	if err != nil {
		return nil, err
	}
	var chain []*x509.Certificate
	if caller, ok := grpcpeer.FromContext(ctx); ok {
		if info, ok := caller.AuthInfo.(credentials.TLSInfo); ok {
			chain = info.State.PeerCertificates
		}
	}
	user, err := p.reviewer.Identify(ctx, chain, bearer(ctx))
	if err == nil {
		err = p.reviewer.Allow(ctx, user, verb)
	}
	if err != nil {
		p.access.log.Warn("kubernetes "+user.Name+status.Code(err).String(), "refused a call", "listener", atKubernetes, "method", method, "caller", user.Name, "err", status.Convert(err).Message())
		return nil, err
	}
	ctx = identity.WithPerson(ctx, user.Name)
	if request == nil {
		stream, end := context.WithCancelCause(ctx)
		go p.askAgain(stream, user, verb, end)
		return stream, nil
	}
	return ctx, nil
}

// askAgain ends a stream whose caller may not have it any more. It ends with the stream.
func (p *persons) askAgain(stream context.Context, user rbac.User, verb string, end func(error)) {
	defer end(nil)
	for live.Sleep(stream, p.every) {
		if err := p.reviewer.Allow(stream, user, verb); err != nil && stream.Err() == nil {
			end(err)
		}
	}
}

// bearer is the token that a caller shows.
func bearer(ctx context.Context) string {
	for _, value := range metadata.ValueFromIncomingContext(ctx, "authorization") {
		if scheme, token, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "bearer") {
			return token
		}
	}
	return ""
}
