package resolverservice

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/resolver-service/answers"
)

// speaks is the address of a sidecar: an app's certificate, and the callers' authority that it trusts.
func speaks(t *testing.T, as *identitytest.CA, app catalog.App, trusts *identitytest.CA) string {
	t.Helper()
	files := as.Config(app).Files
	cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusts.PEM())
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13,
	})
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() { l.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { readAll(conn) })
		}
	})
	return l.Addr().String()
}

// readAll reads until the other end closes.
func readAll(conn net.Conn) {
	defer conn.Close()
	for b := make([]byte, 1024); ; {
		if _, err := conn.Read(b); err != nil {
			return
		}
	}
}

func TestChecksOfAPeerAreAboutThatAlone(t *testing.T) {
	ca, other := identitytest.NewCA(t, identitytest.LongLived), identitytest.NewCA(t, identitytest.LongLived)
	for name, c := range map[string]struct {
		sidecar string
		found   []string
	}{
		"all is well":             {speaks(t, ca, orders, ca), nil},
		"a silent sidecar":        {listening(t), []string{"peer-apps fail shop/orders"}},
		"another app's sidecar":   {speaks(t, ca, checkout, ca), []string{"peer-apps fail shop/orders"}},
		"one that refuses us":     {speaks(t, ca, orders, other), []string{"peer-apps fail shop/orders"}},
		"one that closes at once": {box(t, func(net.Conn) {}).String(), []string{"peer-apps fail shop/orders"}},
	} {
		t.Run(name, func(t *testing.T) {
			west, east := start(t, configOf(t, "west", ca), ca), start(t, configOf(t, "east", ca), ca)
			east.sidecar(orders, c.sidecar)
			west.sidecar(checkout, listening(t))
			east.apply(export("west") + "---\n" + clusterAt("west", west.Addr("gateway"), "1m"))
			north := freeAddress(t)
			address, err := net.ResolveTCPAddr("tcp", north)
			if err != nil {
				t.Fatal(err)
			}
			west.apply(clusterAt("east", east.Addr("gateway"), "1m") + "---\n" + clusterAt("north", address, "1m") + "---\n" + selectsOrders)
			west.findsOf(answers.Limit{Peer: "east"}, c.found...)
			west.findsOf(answers.Limit{Peer: "north"}, "gateway-port fail north "+north)
			if name == "all is well" {
				_, err := receiveCheck(t, west, &v1alpha1.CheckRequest{Peer: "nowhere"})
				if status.Code(err) != codes.NotFound {
					t.Errorf("of a peer that is not there: %v", err)
				}
			}
		})
	}
}

// receiveCheck asks for checks and reads the first answer.
func receiveCheck(t *testing.T, at *running, req *v1alpha1.CheckRequest) (*v1alpha1.CheckResponse, error) {
	t.Helper()
	stream, err := v1alpha1.NewStatusClient(at.connect(identity.CLIApp(""))).Check(t.Context(), req)
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}

func TestChecksOfAnApp(t *testing.T) {
	west, east := linkedPair(t)
	other := answers.Limit{App: catalog.App{Namespace: "shop", ID: "other"}}
	west.apply("apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoints\nmetadata: {namespace: shop, name: other}\nspec: {endpoints: [{app: nothing}]}\n")
	west.finds("selection-exports warn AppEndpoints shop/other")
	west.findsOf(answers.Limit{App: checkout})
	west.findsOf(other, "app-instances fail shop/other", "selection-exports warn AppEndpoints shop/other")
	west.sidecar(other.App, listening(t))
	east.apply(strings.ReplaceAll(export("west"), "orders", "nothing")) // of which nothing runs
	west.findsOf(other, "app-callees warn shop/nothing")
	_, err := receiveCheck(t, west, &v1alpha1.CheckRequest{App: &v1alpha1.App{Namespace: "shop"}})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("of half an app: %v", err)
	}
}
