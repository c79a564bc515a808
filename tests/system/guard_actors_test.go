package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// callActor calls an actor by a method of Dapr's protocol between sidecars.
func (o *outsider) callActor(ctx context.Context, method, kind string) error {
	field := func(b []byte, n protowire.Number, v []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
	}
	varint := func(v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), v)
	}
	request := varint(1)                                                             // InternalInvokeRequest: version 1
	request = field(request, 3, field(field(nil, 1, []byte("hello")), 4, varint(4))) // InvokeRequest: method, PUT
	request = field(request, 4, field(field(nil, 1, []byte(kind)), 2, []byte("1")))  // Actor: type, ID
	name := "/dapr.proto.internals.v1.ServiceInvocation/" + method
	var answer []byte
	if !strings.HasSuffix(method, "Stream") {
		return o.conn.Invoke(ctx, name, &request, &answer, grpc.ForceCodec(raw{}))
	}
	s, err := o.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, name, grpc.ForceCodec(raw{}))
	if err != nil {
		return err
	}
	if err := errors.Join(s.SendMsg(&request), s.CloseSend()); err != nil && !errors.Is(err, io.EOF) {
		return err
	} // of a stream that was refused by then, RecvMsg says why
	return s.RecvMsg(&answer)
}

// TestActorsAreCalledFromTheirNamespaceOrByConsent has apps with valid certificates call an app's actors
// at its sidecar, and through the gateway.
func TestActorsAreCalledFromTheirNamespaceOrByConsent(t *testing.T) {
	t.Parallel()
	tillsApp := catalog.App{Namespace: "callers", ID: "tills"}
	m := ownMesh(t, meshOptions{westSettings: map[string]any{"guard": "enforce", "defaultSelection": "none"}})
	if _, err := m.west.Placement(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	tills := m.sidecar(t, m.west, sandbox.SidecarOptions{App: tillsApp, Actors: "Till", Caller: true})
	m.apply(t, m.west, selection("consented", "friend", "app: tills, namespace: callers"),
		export("callers", "tills", "local, namespace: consented}\n  - {cluster: east, app: visitor"))
	gateway := func(app catalog.App) *outsider {
		return m.outsiderAt(t, app, tillsApp, "passthrough:///"+m.west.Gateway, grpc.WithAuthority("tills.callers.west.isthmus.internal"))
	}
	for _, app := range []catalog.App{{Namespace: "callers", ID: "neighbour"}, {Namespace: "consented", ID: "friend"}} {
		o := m.outsider(t, app, tills)
		meshtest.Eventually(t, meshtest.Patience, func() error {
			return o.callActor(meshtest.Within(t, meshtest.Attempt), "CallActor", "Till")
		})
	}
	stranger := catalog.App{Namespace: "evil", ID: "mallory"}
	before := tills.Behind.Calls()
	for from, o := range map[string]*outsider{"at the sidecar": m.outsider(t, stranger, tills), "through the gateway": gateway(stranger)} {
		for _, method := range []string{"CallActor", "CallActorReminder", "CallActorStream"} {
			for _, kind := range []string{"Till", "dapr.internal.callers.tills.workflow"} {
				err := o.callActor(meshtest.Within(t, meshtest.Patience), method, kind)
				if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "may not call callers/tills") {
					t.Errorf("%s of %s %s: %v; want PermissionDenied", method, kind, from, err)
				}
			}
		}
	}
	if now := tills.Behind.Calls(); now != before {
		t.Errorf("%d calls reached the app", now-before)
	}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		out, _, err := m.isthmus(t, m.west, "", "calls", "callers/tills")
		if err == nil && !strings.Contains(out, "evil/mallory") {
			err = fmt.Errorf("nobody hears of the caller that was refused:\n%s", out)
		}
		return err
	})
}
