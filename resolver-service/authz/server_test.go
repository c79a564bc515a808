package authz

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz/rbac"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// TestAStreamEndsWithTheRightToIt, and not before.
func TestAStreamEndsWithTheRightToIt(t *testing.T) {
	var allowed atomic.Bool
	allowed.Store(true)
	kubeconfig := serverstest.FakeKubernetes(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"status":{"authenticated":true,"user":{"username":"ann"},"allowed":%t}}`, allowed.Load())
	}))
	log := slog.New(slog.DiscardHandler)
	reviewer, err := rbac.New("west", apiserver.Config{Kubeconfig: kubeconfig}, log)
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	defer func() { _ = reviewer.Run(ended) }() // closes its connections
	access, rules := &Authorizer{Log: throttle.New(log, time.Minute)}, At(AtKubernetes).For(reviewer.Admit)
	rules.every = 10 * time.Millisecond
	call, cancel := context.WithCancel(metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer token")))
	defer cancel()
	stream, err := access.check(call, rules, v1alpha1.Inventory_Events_FullMethodName, nil)
	if err != nil {
		t.Fatal(err)
	}
	if name := identity.Caller(stream); name != "ann" {
		t.Errorf("the caller is %q", name)
	}
	select {
	case <-stream.Done():
		t.Fatalf("it ended at once: %v", context.Cause(stream))
	case <-time.After(time.Second):
	}
	allowed.Store(false)
	select {
	case <-stream.Done():
	case <-time.After(time.Minute):
		t.Fatal("it goes on without the right")
	}
	if status.Code(context.Cause(stream)) != codes.PermissionDenied {
		t.Errorf("it ended with %v", context.Cause(stream))
	}
	if _, err := access.check(call, rules, v1alpha1.Objects_Apply_FullMethodName, &v1alpha1.ApplyRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a call without the right: %v", err)
	}
	if _, err := access.check(call, rules, v1alpha1.Resolver_Watch_FullMethodName, nil); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a sidecar's call: %v", err)
	}
}
