package laptop

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	sentryv1 "github.com/isthmus-mesh/isthmus/api/isthmus/sentry/v1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// What Dapr's control plane is called outside of Kubernetes.
const (
	controlDomain    = "localhost"
	controlNamespace = "default"
)

// relay stands in for Sentry on the laptop: it passes the sidecar's requests on to the cluster that the
// guest has joined. It has a key, and a root that signed that key alone.
type relay struct {
	app     catalog.App
	address string
	root    []byte // in PEM
	token   string // file with the word that tells the sidecar from other programs of this machine
	word    string
	sign    func(ctx context.Context, app catalog.App, csr []byte) ([]byte, error)
	server  *grpc.Server
}

func newRelay(dir string, app catalog.App, sign func(context.Context, catalog.App, []byte) ([]byte, error)) (*relay, error) {
	shown, root, err := identity.SelfSigned(identity.ID{TrustDomain: controlDomain, App: catalog.App{Namespace: controlNamespace, ID: "dapr-sentry"}})
	if err != nil {
		return nil, err
	}
	r := &relay{app: app, root: root, token: filepath.Join(dir, "token"), word: rand.Text(), sign: sign}
	if err := os.WriteFile(r.token, []byte(r.word), 0o600); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", loopback)
	if err != nil {
		return nil, err
	}
	r.address = listener.Addr().String()
	r.server = grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*shown}})))
	r.server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "dapr.proto.sentry.v1.CA", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "SignCertificate", Handler: r.handle}},
	}, r)
	go func() { _ = r.server.Serve(listener) }() // ends with Stop
	return r, nil
}

func (r *relay) handle(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var req sentryv1.SignCertificateRequest
	if err := decode(&req); err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare([]byte(req.GetToken()), []byte(r.word)) != 1 {
		return nil, status.Error(codes.PermissionDenied, "this Sentry is for one sidecar, which isthmus dev join has started")
	}
	if named := (catalog.App{Namespace: req.GetNamespace(), ID: req.GetId()}); named != r.app {
		return nil, status.Errorf(codes.PermissionDenied, "this Sentry is for %s alone", r.app)
	}
	text, err := r.sign(ctx, r.app, req.GetCertificateSigningRequest())
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, status.Error(codes.Internal, "the certificate is no PEM")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &sentryv1.SignCertificateResponse{WorkloadCertificate: text, ValidUntil: timestamppb.New(leaf.NotAfter)}, nil
}
