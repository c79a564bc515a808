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
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz/rbac"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
)

// operatorOff is listen.operator for no socket.
const operatorOff = "off"

// longestSocketPath is what every system takes; macOS has the least.
const longestSocketPath = 103

// operatorEdge is for the command line on this machine. It needs no certificate, so it also works
// while Sentry is away: the file's mode says who may connect.
func (c *Config) operatorEdge() edge.Edge {
	return edge.Edge{
		Name: "operator", Listen: edge.At("operator", c.operatorAddress()), Optional: c.Listen.Operator == "",
		Claim: edge.Claim{Default: 64, Part: 64},
	}
}

// operatorAddress is where the socket is; empty for nowhere.
func (c *Config) operatorAddress() string {
	switch c.Listen.Operator {
	case operatorOff:
		return ""
	case "":
		path, err := filepath.Abs(c.dataDir().Own("operator") + ".sock")
		if err != nil || len(path) > longestSocketPath {
			return ""
		}
		return "unix://" + path
	default:
		return c.Listen.Operator
	}
}

// operatorPart serves what listen.resolver serves to operators.
func (s *Service) operatorPart() (edge.Part, error) {
	r := s.resolver
	r.local = r.newServer(authz.At(authz.AtOperator), identity.LocalCredentials(), trustedOptions()...)
	return edge.Part{Run: func(ctx context.Context) error { return edge.ServeGRPC(ctx, s.listeners.TCP("operator"), r.local) }}, nil
}

// operators makes a server within the process, for an edge that has let people in itself.
func (r *resolver) operators(admit authz.Admit) *grpc.Server {
	return r.newServer(authz.At(authz.AtConsole).For(admit), insecure.NewCredentials(), trustedOptions()...)
}

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
		Claim: edge.Claim{Default: 64, Part: 64}, Check: func(doc *strict.Document) { checker{c, doc}.checkKubernetes() },
	}
}

// checkKubernetes adds to the document what is wrong with the listener and its settings.
func (c checker) checkKubernetes() {
	at := c.Listen.Kubernetes
	if at != "" && !c.doc.Wrong("listen.kubernetes") && !edge.OnLoopback(at) {
		c.doc.Refuse("listen.kubernetes", at+" is not on loopback, and others could show it tokens that they have seen", "write "+exampleKubernetes+": kubectl port-forward and isthmus --kubeconfig lead there")
	}
	if at == "" && (c.Kubernetes != Kubernetes{}) {
		c.doc.Refuse("kubernetes", "is for listen.kubernetes, which is not there", "write listen: {kubernetes: "+exampleKubernetes+"}, or leave it out")
		return
	}
	if at == "" || c.doc.Wrong("kubernetes") {
		return
	}
	c.doc.Merge("kubernetes", apiserver.Config(c.Kubernetes).Look())
}

// kubernetesPart serves what verbs has.
func (s *Service) kubernetesPart() (edge.Part, error) {
	reviewer, err := rbac.New(s.cfg.Cluster, apiserver.Config(s.cfg.Kubernetes), s.log)
	if err != nil {
		return edge.Part{}, strict.Below("kubernetes", err)
	}
	s.accounts.Add(reviewer)
	certificate, err := passingCertificate()
	if err != nil {
		return edge.Part{}, err
	}
	server := s.resolver.newServer(authz.At(authz.AtKubernetes).For(reviewer.Admit), credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequestClientCert,
	}), append(trustedOptions(), grpc.MaxHeaderListSize(maxMetadata))...)
	listener := s.connections.Bound("kubernetes", s.listeners.TCP("kubernetes"), bounded.Bounds{Max: s.listeners.Bounds().Of["kubernetes"]})
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
