package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

func TestAServerIsExpectedByItsName(t *testing.T) {
	app := func(s string) identity.ID {
		a, err := catalog.ParseApp(s)
		if err != nil {
			t.Fatal(err)
		}
		return identity.ID{TrustDomain: "public", App: a}
	}
	for _, c := range []struct {
		cluster, pattern, app string
		ok                    bool
	}{
		{"", "isthmus-system/isthmus-*", "isthmus-system/isthmus-west", true},
		{"", "isthmus-system/isthmus-*", "isthmus-system/isthmus-cli", false}, // another operator is no service
		{"", "isthmus-system/isthmus-*", "isthmus-system/other", false},
		{"", "isthmus-system/isthmus-*", "shop/isthmus-west", false},
		{"", "isthmus-system/isthmus-west", "isthmus-system/isthmus-west", true},
		{"", "isthmus-system/isthmus-west", "isthmus-system/isthmus-west2", false},
		{"", "mesh/*", "mesh/isthmus-west", true},
		{"", "mesh/*", "mesh/isthmus-cli", false},
		{"", "mesh/*", "mesh/anything", false}, // a sidecar
		{"", "shop/*", "shop/checkout", false},
		{"", "", "isthmus-system/isthmus-west", true},
		{"", "", "isthmus-system/isthmus-cli", false},
		{"", "", "isthmus-system/checkout", false},
		{"", "", "shop/isthmus-west", false},
		{"west", "", "isthmus-system/isthmus-west", true},
		{"west", "", "isthmus-system/isthmus-east", false},
		{"west", "", "isthmus-system/isthmus-west2", false},
		{"west", "", "shop/isthmus-west", false},
	} {
		expect, err := Options{Cluster: c.cluster, Expect: c.pattern}.expectation()
		if err != nil {
			t.Fatal(err)
		}
		if err := expect(app(c.app)); (err == nil) != c.ok {
			t.Errorf("%s as %s%s: %v", c.app, c.cluster, c.pattern, err)
		}
	}
	for _, o := range []Options{{Expect: "isthmus-west"}, {Cluster: "west", Expect: "mesh/*"}, {Cluster: "West 1"}} {
		if _, err := o.expectation(); !errors.Is(err, ErrUse) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestWhoAsks(t *testing.T) {
	t.Setenv("DAPR_TRUST_ANCHORS", "")
	for _, c := range []struct {
		what    string
		options Options
		want    string // in the error
	}{
		{"nobody", Options{}, "by --sentry"},
		{"two", Options{Identity: "me", Insecure: true}, "--identity and --insecure exclude each other"},
		{"three", Options{Identity: "me", Sentry: "127.0.0.1:50001", Anchors: "ca.crt", Insecure: true}, "--identity and --insecure and --sentry"},
		{"a Sentry that nobody vouches for", Options{Sentry: "127.0.0.1:50001"}, "by --trust-anchors"},
		{"roots of no Sentry", Options{Identity: "me", Anchors: "ca.crt"}, "--trust-anchors goes with --sentry"},
	} {
		if _, err := Dial(t.Context(), c.options); !errors.Is(err, ErrUse) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want wrong use with %s", c.what, err, c.want)
		}
	}
}

func TestAFailedCallSaysWhatToDo(t *testing.T) {
	plain := Options{Server: "127.0.0.1:7400", Insecure: true}
	safe := Options{Server: "127.0.0.1:7400"}
	for _, c := range []struct {
		what    string
		options Options
		err     error
		want    string
	}{
		{"nobody listens", plain, status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:7400: connect: connection refused"`),
			"resolver service at 127.0.0.1:7400 not reached: dial tcp 127.0.0.1:7400: connect: connection refused; is isthmus serve running there?"},
		{"the service wants TLS", plain, status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: EOF"`), "--identity instead of --insecure"},
		{"a gateway listens there", safe, status.Error(codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: remote error: tls: unrecognized name"`), "name the service's listen.resolver by --server"},
		{"a page of listen.admin", plain, status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: http2: failed reading the frame payload: http2: frame too large, note that the frame header looked like an HTTP/1.1 header"`), "it speaks HTTP, as listen.admin does"},
		{"the service speaks plain text", safe, status.Error(codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: tls: first record does not look like a TLS handshake"`), "say --insecure if that is meant"},
		{"another app", safe, status.Error(codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: identity: peer x refused: it is app a/b; want c/d"`), "--server-identity"},
		{"a bad certificate", safe, status.Error(codes.Unavailable, `connection error: desc = "transport: authentication handshake failed: identity: peer: x509svid: could not verify"`), "check that --identity has a valid certificate"},
		{"no answer", plain, status.Error(codes.DeadlineExceeded, "context deadline exceeded"), "may still do what it was asked; is it overloaded or behind a firewall? --timeout gives it longer"},
		{"an answer that something was late", plain, status.Error(codes.DeadlineExceeded, "store consul: Cluster east was written, but lookups do not follow it yet"), "store consul: Cluster east was written, but"},
		{"another server", plain, status.Error(codes.Unimplemented, "unknown service"), "check --server"},
		{"too much", plain, status.Error(codes.ResourceExhausted, "larger than max"), "name fewer objects at once"},
		{"refused", safe, status.Error(codes.PermissionDenied, "no operator"), "refused: no operator"},
		{"anything else", plain, status.Error(codes.NotFound, "store embedded: no such object"), "store embedded: no such object"},
		{"not from the call", plain, errors.New("as it is"), "as it is"},
	} {
		got := (&Conn{options: c.options}).Explain(c.err).Error()
		if !strings.Contains(got, c.want) || strings.Contains(got, "rpc error") || strings.Contains(got, "desc =") {
			t.Errorf("%s: %s\nwant %s", c.what, got, c.want)
		}
	}
}

// What gRPC says of a server that is none changes with its versions; the advice must
// still fit.
func TestARealServerOfAnotherKind(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(insecure.NewCredentials()))
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	conn, err := Dial(t.Context(), Options{Server: l.Addr().String(), Insecure: true, Expect: "isthmus-system/*"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = v1alpha1.NewStatusClient(conn).Status(t.Context(), &v1alpha1.StatusRequest{})
	if got := conn.Explain(err).Error(); !strings.Contains(got, "is no resolver service") {
		t.Errorf("got %s", got)
	}
}

// The control plane of Dapr's chart has other names than one outside of Kubernetes.
func TestASentryOfAnotherControlPlaneIsNamedByFlags(t *testing.T) {
	ca := identitytest.NewCA(t)
	pair := ca.Issue(catalog.App{Namespace: "dapr-system", ID: "dapr-sentry"}, func(c *x509.Certificate) {
		c.URIs = []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/dapr-system/dapr-sentry"}}
	})
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&cert)))
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	anchors := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(anchors, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}

	options := Options{Server: "127.0.0.1:1", Sentry: l.Addr().String(), Anchors: anchors, Context: "west"}
	_, err = Dial(t.Context(), options)
	const want = "it is spiffe://cluster.local/ns/dapr-system/dapr-sentry; want spiffe://localhost/ns/default/dapr-sentry: " +
		"name the control plane's by --sentry-trust-domain and --sentry-namespace; Dapr's chart has cluster.local and dapr-system; the context is west"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v\nwant %s", err, want)
	}
	options.SentryNamespace, options.SentryTrustDomain = "dapr-system", "cluster.local"
	if _, err = Dial(t.Context(), options); err == nil || !strings.Contains(err.Error(), "it speaks gRPC but is no Sentry") {
		t.Errorf("with both flags: %v", err)
	}
}

func TestTheWayIsToldAsFlags(t *testing.T) {
	for _, c := range []struct {
		of               Options
		isthmus, kubectl string
	}{
		{Options{KubeContext: "kind-west"}, " --context kind-west", " --context kind-west"},
		{Options{Kubeconfig: "west.yaml", KubeContext: "kind-west", KubeNamespace: "mesh"}, " --kubeconfig west.yaml --context kind-west --isthmus-namespace mesh", " --kubeconfig west.yaml --context kind-west"},
		{Options{Context: "west", KubeContext: "kind-west"}, " --context west", " --context kind-west"},
		{Options{Context: "west", Server: "10.0.0.5:7400"}, " --context west", ""},
		{Options{Server: "10.0.0.5:7400"}, "", ""},
	} {
		if isthmus, kubectl := (&Conn{options: c.of}).Flags(); isthmus != c.isthmus || kubectl != c.kubectl {
			t.Errorf("%+v: isthmus%s, kubectl%s; want%s, and%s", c.of, isthmus, kubectl, c.isthmus, c.kubectl)
		}
	}
}
