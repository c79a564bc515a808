package answers

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// Bounds of a probe of what a decision leads to.
const (
	maxEndpoints   = 16
	endpointWithin = 2 * time.Second
)

// What becomes of a connection to an endpoint.
const (
	endpointConnected = "connected"
	endpointClosed    = "closed"            // refused, or cut off
	endpointSilent    = "silent"            // no answer in time
	endpointRefused   = "refused"           // by a TLS alert
	endpointWrong     = "wrong certificate" // not that of the app, or signed by none of our roots
)

// Probe connects to what a lookup leads to, all endpoints side by side.
func (v *Inventory) Probe(ctx context.Context, req *v1alpha1.ProbeRequest) (*v1alpha1.ProbeResponse, error) {
	caller, err := wire.ParseApp(req.GetCaller())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "caller: %v", err)
	}
	app, err := wire.ParseApp(req.GetApp())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "app: %v", err)
	}
	all, app := v.endpoints(caller, app)
	answer := &v1alpha1.ProbeResponse{}
	if more := len(all) - maxEndpoints; more > 0 {
		answer.LeftOut, all = uint32(more), all[:maxEndpoints]
	}
	answer.Endpoints = all
	done := make(chan struct{})
	for _, e := range all {
		go func() {
			v.try(ctx, e, app)
			done <- struct{}{}
		}()
	}
	for range all {
		<-done
	}
	return answer, nil
}

// endpoints are those that a caller's lookups of a name may lead to, by the order of its routes, and the
// app that they are of.
func (v *Inventory) endpoints(caller, name catalog.App) (all []*v1alpha1.ProbedEndpoint, app catalog.App) {
	s := v.Topology.Subscribe(caller)
	defer s.Close()
	view, ok := s.View()
	if !ok {
		return nil, name
	}
	e, ok := view.Entries.Get(name)
	if !ok {
		return nil, name
	}
	for i := range e.Routes {
		r := &e.Routes[i]
		if !r.Usable() {
			continue
		}
		host := r.ServerName(view.Gateways.Domain, e.App)
		addresses := r.Addresses
		if r.Gateway {
			addresses = view.Gateways.Addresses[r.Cluster]
		}
		for _, address := range addresses {
			all = append(all, &v1alpha1.ProbedEndpoint{Cluster: r.Cluster, Address: address, ServerName: host})
		}
	}
	return all, e.App
}

// try connects to an endpoint, as far as TLS, and notes what comes of it.
func (v *Inventory) try(ctx context.Context, e *v1alpha1.ProbedEndpoint, app catalog.App) {
	ctx, cancel := context.WithTimeout(ctx, endpointWithin)
	defer cancel()
	begun := time.Now()
	err := v.connect(ctx, e, app)
	e.TookUs = time.Since(begun).Microseconds()
	if err == nil {
		e.Result = endpointConnected
		return
	}
	e.Why = err.Error()
	var timeout net.Error
	switch {
	case errors.Is(err, errWrongCertificate):
		e.Result = endpointWrong
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		e.Result, e.Why = endpointSilent, "no answer within "+endpointWithin.String()
	case strings.Contains(e.Why, "remote error: tls: "):
		e.Result = endpointRefused
	default:
		e.Result = endpointClosed
	}
}

var errWrongCertificate = errors.New("wrong certificate")

// connect dials an endpoint and, where this service has an identity, makes a TLS handshake.
func (v *Inventory) connect(ctx context.Context, e *v1alpha1.ProbedEndpoint, app catalog.App) error {
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", e.GetAddress())
	if err != nil {
		return err
	}
	defer raw.Close()
	cfg := v.Identity.ClientTLS(func(id identity.ID) error {
		if id.App != app {
			return errors.New("it is that of " + id.String())
		}
		return nil
	})
	if cfg == nil {
		e.ServerName = ""
		return nil
	}
	verify := cfg.VerifyConnection
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		e.Identity = certified(cs)
		if err := verify(cs); err != nil {
			return errors.Join(errWrongCertificate, err)
		}
		return nil
	}
	cfg.ServerName, cfg.NextProtos = e.GetServerName(), []string{http2.NextProtoTLS}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		return err
	}
	return greeted(ctx, conn)
}

// greeted is the error of a server that ends the connection once it has seen our certificate. A
// gRPC server that takes it sends its settings.
func greeted(ctx context.Context, conn *tls.Conn) error {
	end, _ := ctx.Deadline()
	if err := conn.SetReadDeadline(end); err != nil {
		return err
	}
	var timeout net.Error
	if _, err := conn.Read(make([]byte, 1)); err != nil && !(errors.As(err, &timeout) && timeout.Timeout()) {
		return err
	}
	return nil
}

// certified is whose certificate was shown: a SPIFFE ID, or the subject.
func certified(cs tls.ConnectionState) string {
	if len(cs.PeerCertificates) == 0 {
		return ""
	}
	leaf := cs.PeerCertificates[0]
	for _, uri := range leaf.URIs {
		return catalog.Printable(uri.String())
	}
	return catalog.Printable(leaf.Subject.String())
}
