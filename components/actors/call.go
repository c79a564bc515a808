package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	internalv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/internals/v1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// What goes along with a call. The first is in the metadata of gRPC, from one bridge to the other.
// Both are headers that the actor gets. Nobody else sets a header that begins with the prefix.
const (
	headerPrefix  = "isthmus-"
	callerHeader  = "isthmus-actor-caller"  // namespace/app-id, by the calling bridge's word
	bridgedHeader = "isthmus-actor-bridged" // the cluster that the call comes from
)

// ownHeaders are those of a sidecar and its own app, and those by which sidecars tell each other who
// calls.
var ownHeaders = []string{"dapr-api-token", "dapr-app-id", "dapr-caller-app-id", "dapr-caller-namespace", "dapr-callee-app-id", "dapr-api-call", "x-dapr-remote"}

// passthrough is gRPC's resolver of that name, which a dialer wraps.
func passthrough() resolver.Builder { return resolver.Get("passthrough") }

// CallActor takes a call of an actor that another cluster owns from a sidecar of this one, and a call
// of an actor here from the bridge of another cluster.
func (b *Bridge) CallActor(ctx context.Context, req *internalv1.InternalInvokeRequest) (res *internalv1.InternalInvokeResponse, err error) {
	typ, start := req.GetActor().GetActorType(), time.Now()
	if err := catalog.CheckActorType(typ); err != nil { // it goes to the log and to traces
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	by, ok := identity.FromContext(ctx)
	callers := metadata.ValueFromIncomingContext(ctx, callerHeader)
	way := outward
	if len(callers) > 0 {
		way = inward
	}
	ctx, span := b.beginSpan(ctx, way, typ)
	defer func() {
		b.metrics.ended(way, typ, err, time.Since(start))
		span.end(err)
	}()
	if !ok {
		return nil, b.refuse(typ, &catalog.Refusal{Outcome: catalog.Denied, Reason: "the bridge needs mTLS to know who calls"})
	}
	if _, known := b.view.Load(); !known {
		const why = "the bridge has not heard the resolver service yet"
		if way == inward { // whose bridge would have to think that it may have run
			return nil, b.lost(typ, false, why)
		}
		return nil, status.Error(codes.Unavailable, why) // a sidecar tries again
	}
	for name := range req.GetMetadata() {
		// Servers that make variables of headers, such as WSGI's, read both as one.
		if lower := strings.ReplaceAll(strings.ToLower(name), "_", "-"); strings.HasPrefix(lower, headerPrefix) || slices.Contains(ownHeaders, lower) {
			delete(req.Metadata, name)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.ending, cancel)()
	if way == inward {
		res, err = b.takeIn(ctx, by, callers[0], req)
	} else {
		res, err = b.passOn(ctx, by, req)
	}
	if c := status.Code(err); b.ending.Err() != nil && (c == codes.Canceled || c == codes.Unavailable) {
		return nil, b.lost(typ, true, fmt.Sprintf("actor %s: this bridge ends", name(req)))
	}
	return res, err
}

// passOn passes a call on to the bridge of the cluster that owns the actor.
func (b *Bridge) passOn(ctx context.Context, by identity.ID, req *internalv1.InternalInvokeRequest) (*internalv1.InternalInvokeResponse, error) {
	typ := req.GetActor().GetActorType()
	view, _ := b.view.Load()
	domain, known := b.identity.Domain()
	own := known && domain == by.TrustDomain || slices.Contains(view.Domains, by.TrustDomain)
	owner, refusal := view.Lead(own, catalog.Principal{Domain: by.TrustDomain, App: by.App}, typ)
	if refusal != nil {
		return nil, b.refuse(typ, refusal)
	}
	app := catalog.BridgeApp(b.cfg.Namespace, owner)
	conn, err := b.peer(ctx, owner, app)
	if err != nil {
		if errors.As(err, &refusal) {
			refusal = &catalog.Refusal{Outcome: refusal.Outcome, Reason: fmt.Sprintf("actors of type %s are in cluster %s, whose bridge %s is not reached: %s", typ, owner, app, refusal.Reason)}
			return nil, b.refuse(typ, refusal)
		}
		return nil, status.FromContextError(err).Err()
	}
	ctx = metadata.AppendToOutgoingContext(ctx, callerHeader, by.App.String())
	res, mayHaveRun, err := call(ctx, conn, req)
	if status.Code(err) != codes.Unavailable {
		return res, err
	}
	return nil, b.lost(typ, mayHaveRun, fmt.Sprintf("actor %s in cluster %s: its bridge: %s", name(req), owner, status.Convert(err).Message()))
}

// takeIn makes a call of another cluster's bridge here.
func (b *Bridge) takeIn(ctx context.Context, by identity.ID, caller string, req *internalv1.InternalInvokeRequest) (*internalv1.InternalInvokeResponse, error) {
	typ := req.GetActor().GetActorType()
	app, err := catalog.ParseApp(caller)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, callerHeader+": "+err.Error())
	}
	view, _ := b.view.Load()
	if refusal := view.Admit(catalog.Principal{Domain: by.TrustDomain, App: by.App}, app, typ); refusal != nil {
		return nil, b.refuse(typ, refusal)
	}
	if err := checkNames(req); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	from, _ := by.App.BridgeCluster()
	if req.Metadata == nil {
		req.Metadata = map[string]*internalv1.ListStringValue{}
	}
	req.Metadata[callerHeader] = &internalv1.ListStringValue{Values: []string{app.String()}}
	req.Metadata[bridgedHeader] = &internalv1.ListStringValue{Values: []string{from}}
	return b.callHost(ctx, req)
}

// checkNames refuses what sidecars refuse of their own apps, since the host makes a path of it.
func checkNames(req *internalv1.InternalInvokeRequest) error {
	parts := []string{req.GetActor().GetActorId()}
	methods := 0
	for b := req.GetMessage(); len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("the message is broken: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if number == methodField && kind == protowire.BytesType {
			method, n := protowire.ConsumeString(b)
			if n < 0 {
				return fmt.Errorf("the message is broken: %w", protowire.ParseError(n))
			}
			parts = append(parts, strings.Split(method, "/")...)
			methods++
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return fmt.Errorf("the message is broken: %w", protowire.ParseError(n))
		}
		b = b[n:]
	}
	if methods == 0 {
		return errors.New("the call has no method")
	}
	for _, part := range parts {
		if !isName(part) {
			return fmt.Errorf("%.64q is no part of an actor's id or method that Dapr takes", part)
		}
	}
	return nil
}

// methodField is that of the method in Dapr's common.v1.InvokeRequest.
const methodField = 1

// isName tells whether Dapr takes a part of a path for a name: nothing leads out of it.
func isName(s string) bool {
	control := func(c rune) bool { return c < ' ' || c == 0x7f }
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, `#?/\`) && !strings.ContainsFunc(s, control)
}

// How long a call looks for the host of its actor, while hosts come and go, and how often. Dapr's own
// sidecars do so for 5 s.
const (
	lookFor   = 5 * time.Second
	lookAgain = 100 * time.Millisecond
)

// callHost calls an actor at the sidecar that hosts it. It tries again only what has not run.
func (b *Bridge) callHost(ctx context.Context, req *internalv1.InternalInvokeRequest) (*internalv1.InternalInvokeResponse, error) {
	typ, p := req.GetActor().GetActorType(), b.placement
	for start := time.Now(); ; {
		table, known, changed := p.table.Follow()
		at, hosted := table.host(typ, req.GetActor().GetActorId())
		var why string
		switch {
		case !known:
			why = "the placement service at " + b.cfg.Placement + " has not answered yet"
		case !hosted:
			why = "no app here hosts the type"
		case at.app == b.cfg.App().ID:
			return nil, b.refuse(typ, &catalog.Refusal{Outcome: catalog.Unavailable, Reason: fmt.Sprintf("actor %s is not in cluster %s, which owns its type: the bridge hosts it; a call passes one pair of bridges", name(req), b.cfg.Cluster)})
		default:
			conn, err := p.connection(at)
			if err != nil {
				return nil, err
			}
			res, mayHaveRun, err := call(ctx, conn.ClientConn, req)
			p.release(conn)
			moved := hasMoved(err)
			switch {
			case err == nil || !moved && status.Code(err) != codes.Unavailable || ctx.Err() != nil:
				return res, err
			case mayHaveRun && !moved:
				return nil, b.lost(typ, true, fmt.Sprintf("actor %s at %s of app %s: %s", name(req), at.address, at.app, status.Convert(err).Message()))
			}
			why = fmt.Sprintf("%s of app %s: %s", at.address, at.app, status.Convert(err).Message())
		}
		if time.Since(start) > lookFor {
			return nil, b.lost(typ, false, fmt.Sprintf("actor %s in its owner cluster %s: %s", name(req), b.cfg.Cluster, why))
		}
		again := time.NewTimer(lookAgain)
		select {
		case <-changed:
			again.Stop()
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// hasMoved tells whether a host has not made a call, since the actor is elsewhere by now. The texts are
// those by which Dapr's sidecars tell each other (pkg/actors/router).
func hasMoved(err error) bool {
	s := status.Convert(err)
	if strings.Contains(s.Message(), "error from actor service") {
		return false // an actor said it, so it has run
	}
	return s.Code() == codes.Internal && (strings.HasSuffix(s.Message(), "remote actor moved") || strings.HasSuffix(s.Message(), "placement is disseminating"))
}

// call makes one attempt of a call, with the deadline of ctx. mayHaveRun tells whether the other end
// may have got it.
func call(ctx context.Context, conn *grpc.ClientConn, req *internalv1.InternalInvokeRequest) (_ *internalv1.InternalInvokeResponse, mayHaveRun bool, err error) {
	var to peer.Peer
	res, err := internalv1.NewServiceInvocationClient(conn).CallActor(ctx, req, grpc.Peer(&to))
	return res, to.Addr != nil, err
}

func name(req *internalv1.InternalInvokeRequest) string {
	return fmt.Sprintf("%.128s/%.128s", req.GetActor().GetActorType(), req.GetActor().GetActorId())
}

// errorName is how an error of a call begins.
func errorName(outcome catalog.Outcome) string {
	return "ERR_ISTHMUS_" + strings.ToUpper(strings.ReplaceAll(outcome.String(), " ", "_"))
}

// refuse is the error of a call that is not made. Its code is one that sidecars do not try again.
func (b *Bridge) refuse(typ string, refusal *catalog.Refusal) error {
	key := refusal.Outcome.String()
	if view, _ := b.view.Load(); view != nil && (view.Import(typ) != nil || view.Owns(typ) != nil) {
		key = typ + key // a caller may write any other
	}
	b.often.Warn(key, "refused a call of an actor", "type", typ, "outcome", refusal.Outcome.String(), "why", refusal.Reason)
	code := codes.FailedPrecondition
	if refusal.Outcome == catalog.Denied {
		code = codes.PermissionDenied
	}
	return status.Errorf(code, "%s: %s", errorName(refusal.Outcome), refusal.Reason)
}

// lost is the error of a call whose other end was not reached, or was lost.
func (b *Bridge) lost(typ string, mayHaveRun bool, why string) error {
	if mayHaveRun {
		why += "; the call may have run, so it is not tried again"
	}
	b.often.Warn(typ+" lost", "a call of an actor failed", "type", typ, "why", why)
	return status.Errorf(codes.FailedPrecondition, "%s: %s", errorName(catalog.Unavailable), why)
}
