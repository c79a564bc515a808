package resolverservice

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

// strangers are two services with an authority each, which know nothing of each other.
func strangers(t *testing.T) (west, east *running) {
	t.Helper()
	westCA, eastCA := identitytest.NewCA(t), identitytest.NewCA(t)
	return start(t, configOf(t, "west", westCA), westCA), start(t, configOf(t, "east", eastCA), eastCA)
}

func (r *running) linker() v1alpha1.LinkClient {
	return v1alpha1.NewLinkClient(r.connect(identity.CLIApp("")))
}

// invite opens an invitation.
func (r *running) invite(cluster string, o *v1alpha1.LinkOptions) *v1alpha1.InviteResponse {
	r.t.Helper()
	answer, err := r.linker().Invite(r.t.Context(), &v1alpha1.InviteRequest{Cluster: cluster, Options: o})
	if err != nil {
		r.t.Fatal(err)
	}
	return answer
}

// accept takes an invitation, and returns what was told last.
func (r *running) accept(invitation string, o *v1alpha1.LinkOptions) (last *v1alpha1.LinkState, err error) {
	r.t.Helper()
	stream, err := r.linker().Accept(r.t.Context(), &v1alpha1.AcceptRequest{Invitation: invitation, Options: o})
	if err != nil {
		r.t.Fatal(err)
	}
	for {
		state, err := stream.Recv()
		if err == io.EOF {
			return last, nil
		}
		if err != nil {
			return last, err
		}
		last = state
	}
}

// clusters are the Cluster objects of a service's store.
func (r *running) clusters() (names []string) {
	r.t.Helper()
	answer, err := v1alpha1.NewObjectsClient(r.connect(identity.CLIApp(""))).Get(r.t.Context(), &v1alpha1.GetRequest{Key: &v1alpha1.ObjectKey{Kind: "Cluster"}})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, o := range answer.GetObjects() {
		names = append(names, o.GetKey().GetName())
	}
	return names
}

// state is an invitation as its service has it.
func (r *running) invitation(id string) *v1alpha1.LinkState {
	r.t.Helper()
	answer, err := r.linker().Invitations(r.t.Context(), &v1alpha1.InvitationsRequest{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, i := range answer.GetInvitations() {
		if i.GetId() == id {
			return i
		}
	}
	r.t.Fatalf("no invitation %s in %v", id, answer)
	return nil
}

func TestTwoClustersAreLinkedByAnInvitation(t *testing.T) {
	west, east := strangers(t)
	invited := east.invite("west", nil)
	done, err := west.accept(invited.GetInvitation(), nil)
	if err != nil {
		t.Fatal(err)
	}
	there := east.invitation(invited.GetState().GetId())
	if done.GetState() != "linked" || there.GetState() != "linked" || len(done.GetWords()) != 4 || strings.Join(done.GetWords(), " ") != strings.Join(there.GetWords(), " ") {
		t.Errorf("west has %v, and east %v", done, there)
	}
	t.Log(done.GetWords(), string(done.GetObject()))
	east.apply(export("west"))
	east.sidecar(orders, "10.1.0.1:50002")
	west.apply(selectsOrders)
	west.within("orders answered from east", func() bool { return strings.HasPrefix(west.resolve(checkout, orders), "ok orders.shop.east.") })
	east.within("west heard", func() bool { return east.peer("west").GetState() == "connected" })
}

// lockedBuffer keeps what many write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

var (
	_ = base64.StdEncoding
	_ = slog.Default
	_ = time.Now
	_ = status.Code
	_ = context.Background
)
