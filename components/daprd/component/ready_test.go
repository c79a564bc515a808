package component

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// sidecarAt describes a daprd with its HTTP API and its internal server at these addresses.
func sidecarAt(t *testing.T, api, internal net.Addr) nr.Instance {
	t.Helper()
	return nr.Instance{
		Address: "127.0.0.1", DaprHTTPPort: api.(*net.TCPAddr).Port, DaprInternalPort: internal.(*net.TCPAddr).Port,
	}
}

// listen is a server for other sidecars.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// mutualTLS is what a sidecar serves others with.
func mutualTLS(t *testing.T) *tls.Config {
	t.Helper()
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := authority.Leaf("public", orders)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert, NextProtos: []string{"h2"}}
}

// awaits reports whether awaitReady returns within d.
func awaits(t *testing.T, self nr.Instance, d time.Duration) (ready bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	awaitReady(ctx, self)
	return ctx.Err() == nil
}

func TestASidecarIsReadyWhenItsHealthEndpointSaysSo(t *testing.T) {
	var code atomic.Int64
	code.Store(http.StatusInternalServerError) // as daprd answers until its app listens
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1.0/healthz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(int(code.Load()))
	}))
	defer api.Close()
	self := sidecarAt(t, api.Listener.Addr(), listen(t).Addr())
	if awaits(t, self, 300*time.Millisecond) {
		t.Fatal("ready while daprd says that it is not")
	}
	for _, good := range []int64{http.StatusNoContent, http.StatusUnauthorized} {
		code.Store(good)
		if !awaits(t, self, time.Minute) {
			t.Errorf("not ready after daprd answers %d", good)
		}
	}
}

func TestWithoutAHealthEndpointTheServerForOthersHasToDo(t *testing.T) {
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	nobody := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
	if awaits(t, sidecarAt(t, nobody, nobody), 300*time.Millisecond) {
		t.Error("ready before anything listens")
	}
	if awaits(t, sidecarAt(t, nobody, listen(t).Addr()), 300*time.Millisecond) {
		t.Error("ready while the port of the server for others is open and nothing answers")
	}
	for what, creds := range map[string]credentials.TransportCredentials{
		"plain text": insecure.NewCredentials(), "TLS": credentials.NewTLS(mutualTLS(t)),
	} {
		lis := listen(t)
		server := grpc.NewServer(grpc.Creds(creds))
		go func() { _ = server.Serve(lis) }()
		t.Cleanup(server.Stop)
		if !awaits(t, sidecarAt(t, nobody, lis.Addr()), time.Minute) {
			t.Errorf("not ready, though the server for others answers in %s", what)
		}
	}
}
