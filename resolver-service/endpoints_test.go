package resolverservice

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

// listen serves connections of loopback, and returns its address.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn)
		}
	}()
	return l.Addr().String()
}

// daprd is an instance that shows the certificate of an app, and then sends settings.
func daprd(t *testing.T, ca *identitytest.CA, app catalog.App) func(net.Conn) {
	t.Helper()
	pair := ca.Issue(app)
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return func(raw net.Conn) {
		conn := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert, NextProtos: []string{http2.NextProtoTLS}})
		_ = http2.NewFramer(conn, conn).WriteSettings()
		conn.Close()
	}
}

func TestAProbeSaysWhatBecomesOfConnections(t *testing.T) {
	ca := identitytest.NewCA(t)
	west := start(t, configOf(t, "west", ca), ca)
	closed := freeAddress(t)
	held := make(chan net.Conn, 16)
	t.Cleanup(func() {
		for len(held) > 0 {
			(<-held).Close()
		}
	})
	own := func(id string) string {
		return identity.ID{TrustDomain: identitytest.TrustDomain, App: catalog.App{Namespace: "shop", ID: id}}.String()
	}
	yaml, want := "", map[string][2]string{} // result and identity by app
	for id, c := range map[string]struct{ address, result, identity string }{
		"good":   {listen(t, daprd(t, ca, catalog.App{Namespace: "shop", ID: "good"})), "connected", own("good")},
		"other":  {listen(t, daprd(t, ca, catalog.App{Namespace: "shop", ID: "elsewhere"})), "wrong certificate", own("elsewhere")},
		"rooted": {listen(t, daprd(t, identitytest.NewCA(t), catalog.App{Namespace: "shop", ID: "rooted"})), "wrong certificate", own("rooted")},
		"gone":   {closed, "closed", ""},
		"cut":    {listen(t, func(c net.Conn) { c.Close() }), "closed", ""},
		"silent": {listen(t, func(c net.Conn) { held <- c }), "silent", ""},
	} {
		yaml += fmt.Sprintf("---\napiVersion: isthmus.dev/v1alpha1\nkind: AppInstance\nmetadata: {namespace: shop, name: %s}\nspec: {app: %[1]s, address: '%s'}\n", id, c.address)
		want[id] = [2]string{c.result, c.identity}
	}
	west.apply(yaml)
	operator := v1alpha1.NewInventoryClient(west.connect(identity.CLIApp("")))
	for id, w := range want {
		app := catalog.App{Namespace: "shop", ID: id}
		west.within(id+" is known", func() bool { return strings.HasPrefix(west.resolve(checkout, app), "ok ") })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		answer, err := operator.Probe(ctx, &v1alpha1.ProbeRequest{
			Caller: &v1alpha1.App{Namespace: checkout.Namespace, Id: checkout.ID}, App: &v1alpha1.App{Namespace: app.Namespace, Id: app.ID},
		})
		cancel()
		if err != nil || len(answer.GetEndpoints()) != 1 {
			t.Errorf("%s: %v, %v", id, answer, err)
			continue
		}
		if e := answer.GetEndpoints()[0]; e.GetResult() != w[0] || e.GetIdentity() != w[1] || (e.GetWhy() == "") != (w[0] == "connected") {
			t.Errorf("%s: %v, want %v", id, e, w)
		}
	}
	answer, err := operator.Probe(t.Context(), &v1alpha1.ProbeRequest{
		Caller: &v1alpha1.App{Namespace: "shop", Id: "checkout"}, App: &v1alpha1.App{Namespace: "shop", Id: "nobody"},
	})
	if err != nil || len(answer.GetEndpoints()) > 0 {
		t.Errorf("an app that there is not: %v, %v", answer, err)
	}
}
