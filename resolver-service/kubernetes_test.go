package resolverservice

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
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

// TestEveryMethodOfOperatorsTakesAVerb, so that a new one is not open, or missing, on Kubernetes.
func TestEveryMethodOfOperatorsTakesAVerb(t *testing.T) {
	for method, kinds := range access[atResolver] {
		if known := []string{mayRead, mayWrite, mayLink}; slices.Contains(kinds, operator) && method != v1alpha1.Resolver_Watch_FullMethodName && !slices.Contains(known, verbs[method]) {
			t.Errorf("%s takes the verb %q, want one of %v", method, verbs[method], known)
		}
	}
}

// TestListenKubernetesIsOnLoopback, and needs an API server.
func TestListenKubernetesIsOnLoopback(t *testing.T) {
	kubeconfig := serverstest.FakeKubernetes(t, http.NotFoundHandler())
	for text, want := range map[string]string{
		"listen: {kubernetes: 127.0.0.1:7482}\nkubernetes: {kubeconfig: " + kubeconfig + "}":   "",
		"listen: {kubernetes: '[::1]:7482'}\nkubernetes: {kubeconfig: " + kubeconfig + "}":     "",
		"listen: {kubernetes: 0.0.0.0:7482}\nkubernetes: {kubeconfig: " + kubeconfig + "}":     "listen.kubernetes: 0.0.0.0:7482 is not on loopback",
		"listen: {kubernetes: 10.0.0.1:7482}\nkubernetes: {kubeconfig: " + kubeconfig + "}":    "listen.kubernetes: 10.0.0.1:7482 is not on loopback",
		"listen: {kubernetes: 7482}\nkubernetes: {kubeconfig: " + kubeconfig + "}":             "such as 127.0.0.1:7482",
		"listen: {kubernetes: 127.0.0.1:7482}":                                                 "kubernetes.kubeconfig: is missing, and this is no pod",
		"kubernetes: {kubeconfig: " + kubeconfig + "}":                                         "is for listen.kubernetes, which is not there",
		"listen: {kubernetes: 127.0.0.1:7482}\nkubernetes: {kubeconfig: /none, context: east}": "no such file",
	} {
		if !strings.Contains(text, "listen") {
			text = "listen: {admin: 127.0.0.1:0}\n" + text
		} else {
			text = strings.Replace(text, "{kubernetes: ", "{admin: 127.0.0.1:0, kubernetes: ", 1)
		}
		_, err := Parse("isthmus.yaml", []byte("cluster: west\nidentity: {insecure: true}\n"+text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

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
	p := &persons{reviewer: reviewer, access: &authorizer{log: throttle.New(log, time.Minute)}, every: 10 * time.Millisecond}
	call, cancel := context.WithCancel(metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer token")))
	defer cancel()
	stream, err := p.admit(call, v1alpha1.Inventory_Events_FullMethodName, nil)
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
	if _, err := p.admit(call, v1alpha1.Objects_Apply_FullMethodName, &v1alpha1.ApplyRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a call without the right: %v", err)
	}
	if _, err := p.admit(call, v1alpha1.Resolver_Watch_FullMethodName, nil); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a sidecar's call: %v", err)
	}
}
