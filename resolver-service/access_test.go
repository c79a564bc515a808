package resolverservice

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz"
)

// methods are all that the protocol has.
func methods() (all []string) {
	services := v1alpha1.File_isthmus_v1alpha1_services_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			all = append(all, "/"+string(services.Get(i).FullName())+"/"+string(services.Get(i).Methods().Get(j).Name()))
		}
	}
	return all
}

// as is a client with a certificate of an authority, which believes any server.
func (r *running) as(ca *identitytest.CA, app catalog.App, domain string) credentials.TransportCredentials {
	r.t.Helper()
	source, err := identity.New(ca.Config(app, identitytest.In(r.t, domain, app)), app, r.log)
	if err == nil {
		err = source.Load(r.t.Context())
	}
	if err != nil {
		r.t.Fatal(err)
	}
	cfg := source.ClientTLS(identity.Anyone)
	cfg.VerifyConnection = nil
	return credentials.NewTLS(cfg)
}

// call makes a call with an empty message, and returns how it ended.
func (r *running) call(listener, method string, creds credentials.TransportCredentials) error {
	r.t.Helper()
	at := r.Addr(listener)
	if listener == authz.AtInvitation {
		at = r.Addr("gateway")
	}
	target := "passthrough:///" + at.String()
	if at.Network() == "unix" {
		target = "unix://" + at.String()
	}
	name := "_resolver.west.isthmus.internal"
	if listener == authz.AtInvitation {
		name = "_link.west.isthmus.internal"
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds), grpc.WithAuthority(name))
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	_ = stream.SendMsg(&v1alpha1.StatusRequest{}) // RecvMsg tells why it fails
	_ = stream.CloseSend()
	return stream.RecvMsg(&v1alpha1.StatusRequest{})
}

// Each method at each listener, called by each kind of caller: access says who passes, and
// nobody else does.
func TestAccess(t *testing.T) {
	ca, eastCA := identitytest.NewCA(t), identitytest.NewCA(t)
	west := start(t, configOf(t, "west", ca), ca)
	west.apply(trusting("north", west.Addr("gateway")) + "---\n" + trusting("east", west.Addr("gateway"), eastCA.PEM()))
	own := identitytest.TrustDomain
	callers := []struct {
		what  string
		kind  authz.Kind
		creds credentials.TransportCredentials
	}{
		{"an own sidecar", authz.Sidecar, west.as(ca, checkout, own)},
		{"an own operator", authz.Operator, west.as(ca, identity.CLIApp(""), own)},
		{"a peer under the same root", authz.Peer, west.as(ca, identity.ServiceApp("", "north"), own)},
		{"a peer with a root of its own", authz.Peer, west.as(eastCA, identity.ServiceApp("", "east"), own)},
		{"a service of a cluster without an object", authz.Foreign, west.as(ca, identity.ServiceApp("", "south"), own)},
		{"a foreign app under the same root", authz.Foreign, west.as(ca, checkout, "foreign.example")},
		{"a foreign operator under the same root", authz.Foreign, west.as(ca, identity.CLIApp(""), "foreign.example")},
		{"an app under a peer's root", authz.Foreign, west.as(eastCA, checkout, own)},
		{"an operator under a peer's root", authz.Foreign, west.as(eastCA, identity.CLIApp(""), own)},
		{"an app of an authority that nobody knows", authz.Foreign, west.as(identitytest.NewCA(t), checkout, own)},
		{"nobody, in TLS", authz.Nobody, credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})},
		{"nobody, in plain text", authz.Nobody, insecure.NewCredentials()},
	}
	west.within("peers are known", func() bool {
		err := west.call("gateway", v1alpha1.Peering_Renew_FullMethodName, callers[3].creds)
		return status.Code(err) == codes.InvalidArgument
	})
	all := methods()
	servers := map[string]*grpc.Server{authz.AtResolver: west.resolver.grpc, authz.AtOperator: west.resolver.local, authz.AtGateway: west.ingress.grpc, authz.AtInvitation: west.ingress.linking}
	west.invite("north", nil)
	for listener, server := range servers {
		for service, info := range server.GetServiceInfo() {
			for _, m := range info.Methods {
				if name := "/" + service + "/" + m.Name; authz.At(listener).Kinds(name) == nil {
					t.Errorf("%s is served at the %s, and access has no line for it", name, listener)
				}
			}
		}
	}
	for _, method := range all {
		if authz.At(authz.AtResolver).Kinds(method) == nil && authz.At(authz.AtGateway).Kinds(method) == nil && authz.At(authz.AtInvitation).Kinds(method) == nil {
			t.Errorf("%s: access has no line for it", method)
		}
		for listener := range servers {
			for _, c := range callers {
				err := west.call(listener, method, c.creds)
				allowed := c.kind != authz.Nobody && slices.Contains(authz.At(listener).Kinds(method), c.kind)
				if listener == authz.AtOperator { // whoever opens the socket, in plain text
					allowed = c.creds.Info().SecurityProtocol == "insecure" && len(authz.At(listener).Kinds(method)) > 0
				}
				if listener == authz.AtInvitation { // what the certificate names is not verified yet
					allowed = strings.Contains(c.what, "peer with") || strings.Contains(c.what, "peer under") || strings.HasPrefix(c.what, "a service")
					allowed = allowed && len(authz.At(listener).Kinds(method)) > 0
				}
				refused := slices.Contains([]codes.Code{codes.PermissionDenied, codes.Unimplemented, codes.Unavailable}, status.Code(err))
				if allowed == refused {
					t.Errorf("%s at the %s, called by %s: allowed %v, got %v", method, listener, c.what, allowed, err)
				}
			}
		}
	}
}

// What a caller may not have is told to it in words that help.
func TestRefusalsSayWhatToDo(t *testing.T) {
	ca := identitytest.NewCA(t)
	cfg := configOf(t, "west", ca)
	west := start(t, cfg, ca)
	for _, c := range []struct {
		app    catalog.App
		domain string
		want   string
	}{
		{checkout, identitytest.TrustDomain, "isthmus.v1alpha1.Status is for operators, and app shop/checkout is none"},
		{identity.CLIApp(""), "foreign.example", "identity.trustDomains"},
		{identity.ServiceApp("", "east"), identitytest.TrustDomain, "through the gateway"},
	} {
		err := west.call("resolver", v1alpha1.Status_Status_FullMethodName, west.as(ca, c.app, c.domain))
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %s: %v", c.app, c.domain, err)
		}
	}
	if err := west.stop(); err != nil {
		t.Fatal(err)
	}
	cfg.Identity.TrustDomains = []string{"foreign.example"}
	west = start(t, cfg, ca)
	if err := west.call("resolver", v1alpha1.Status_Status_FullMethodName, west.as(ca, identity.CLIApp(""), "foreign.example")); err != nil {
		t.Errorf("an operator of a trust domain that is named: %v", err)
	}
	if got := west.domains(ca); !slices.Equal(got, []string{identitytest.TrustDomain, "foreign.example"}) {
		t.Errorf("the bridge of a namespace is told that its cluster's trust domains are %q", got)
	}
}

// domains are the trust domains that a bridge is told to take callers of.
func (r *running) domains(ca *identitytest.CA) []string {
	r.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+r.Addr("resolver").String(), grpc.WithTransportCredentials(r.as(ca, catalog.BridgeApp("shop", "west"), identitytest.TrustDomain)))
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	stream, err := v1alpha1.NewActorsClient(conn).Watch(r.t.Context(), &v1alpha1.ActorsRequest{Namespace: "shop"})
	if err != nil {
		r.t.Fatal(err)
	}
	told, err := stream.Recv()
	if err != nil {
		r.t.Fatal(err)
	}
	return told.GetDomains()
}
