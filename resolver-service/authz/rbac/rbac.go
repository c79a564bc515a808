// Package rbac knows operators as Kubernetes does: who somebody is, by a token or a client
// certificate, and what the cluster's RBAC allows them. It asks the API server, as extension API
// servers do, and remembers an answer for some seconds.
package rbac

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz/trustbundle"
)

// What RBAC allows is a verb on the resource resolvers.isthmus.dev of the cluster's name. There
// are no objects of that resource.
const (
	Group    = "isthmus.dev"
	Resource = "resolvers"
)

// How long answers of the API server hold. A right that is withdrawn, or a token, still counts
// for so long.
const (
	knownFor   = 10 * time.Second
	allowedFor = 5 * time.Second
	refusedFor = 2 * time.Second // also for a token that nobody knows
)

// askTimeout bounds a question to the API server.
const askTimeout = 5 * time.Second

// maxAsking bounds the questions at a time, so that callers whom nobody knows can't flood the API
// server.
const maxAsking = 16

// User is somebody as Kubernetes knows them.
type User struct {
	Name   string              `json:"username"`
	UID    string              `json:"uid"`
	Groups []string            `json:"groups"`
	Extra  map[string][]string `json:"extra"`
}

// Reviewer asks an API server for users and their rights. Its methods may be called from any
// goroutine. Their errors are gRPC's.
type Reviewer struct {
	cluster string
	server  *apiserver.Server
	clients *trustbundle.Bundle // Kubernetes' own roots of client certificates
	asking  chan struct{}
	known   cache[person]
	allowed cache[error] // nil: allowed
}

// person is somebody, or why nobody is known.
type person struct {
	User
	err error
}

// New makes a Reviewer for the operators of a cluster, and asks nothing.
func New(cluster string, c apiserver.Config, log *slog.Logger) (*Reviewer, error) {
	server, err := apiserver.New(c)
	if err != nil {
		return nil, err
	}
	clients, err := trustbundle.OfClients(c, log)
	if err != nil {
		return nil, err
	}
	return &Reviewer{
		cluster: cluster, server: server, clients: clients, asking: make(chan struct{}, maxAsking),
		known: newCache[person](), allowed: newCache[error](),
	}, nil
}

// Account is what a Reviewer needs in Kubernetes.
func (r *Reviewer) Account() apiserver.Account {
	role := apiserver.Role{Name: "isthmus-reviewer", Rights: append(
		apiserver.Rights("authentication.k8s.io", "", []string{"tokenreviews"}, "create"),
		apiserver.Rights("authorization.k8s.io", "", []string{"subjectaccessreviews"}, "create")...)}
	return apiserver.Account{Server: r.server, Roles: append([]apiserver.Role{role}, r.clients.Account().Roles...)}
}

// Run follows the roots of client certificates until ctx ends.
func (r *Reviewer) Run(ctx context.Context) error {
	defer r.server.Close()
	r.clients.Run(ctx)
	return nil
}

// Admit names the caller of a gRPC method, and refuses a user without the right to a verb. again
// tells whether that still holds for them, as a stream that goes on must ask.
func (r *Reviewer) Admit(ctx context.Context, verb string) (name string, again func(context.Context) error, err error) {
	var chain []*x509.Certificate
	if caller, ok := peer.FromContext(ctx); ok {
		if info, ok := caller.AuthInfo.(credentials.TLSInfo); ok {
			chain = info.State.PeerCertificates
		}
	}
	user, err := r.Identify(ctx, chain, bearer(ctx))
	if err != nil {
		return user.Name, nil, err
	}
	again = func(ctx context.Context) error { return r.Allow(ctx, user, verb) }
	return user.Name, again, again(ctx)
}

// bearer is the token that a caller shows.
func bearer(ctx context.Context) string {
	for _, value := range metadata.ValueFromIncomingContext(ctx, "authorization") {
		if scheme, token, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "bearer") {
			return token
		}
	}
	return ""
}

// Identify tells who shows a chain of certificates, a token or both. A certificate counts first.
func (r *Reviewer) Identify(ctx context.Context, chain []*x509.Certificate, token string) (User, error) {
	switch {
	case len(chain) > 0:
		user, err := r.byCertificate(ctx, chain)
		if err == nil || token == "" {
			return user, err
		}
		return r.byToken(ctx, token)
	case token != "":
		return r.byToken(ctx, token)
	default:
		return User{}, status.Error(codes.Unauthenticated, "nobody is named: show the client certificate or the token of a user of Kubernetes, as isthmus does with --kubeconfig")
	}
}

// byToken asks the API server by a TokenReview.
func (r *Reviewer) byToken(ctx context.Context, token string) (User, error) {
	key := sha256.Sum256([]byte(token))
	if known, ok := r.known.get(key); ok {
		return known.User, known.err
	}
	var review struct {
		Status struct {
			Authenticated bool   `json:"authenticated"`
			User          User   `json:"user"`
			Error         string `json:"error"`
		} `json:"status"`
	}
	if err := r.review(ctx, "authentication.k8s.io", "TokenReview", "tokenreviews", map[string]any{"token": token}, &review); err != nil {
		return User{}, err
	}
	if s := review.Status; !s.Authenticated || s.User.Name == "" {
		err := status.Error(codes.Unauthenticated, "Kubernetes does not know the token, or not any more: log in to the cluster again")
		r.known.put(key, person{err: err}, refusedFor)
		return User{}, err
	}
	r.known.put(key, person{User: review.Status.User}, knownFor)
	return review.Status.User, nil
}

// byCertificate reads the user from a certificate, as the API server does: the common name and
// the organizations.
func (r *Reviewer) byCertificate(ctx context.Context, chain []*x509.Certificate) (User, error) {
	leaf := chain[0]
	name := leaf.Subject.CommonName
	text, err := r.clients.Read(ctx)
	if err != nil {
		return User{}, status.Errorf(codes.Unavailable, "%s: who %q is can't be checked: %v; a token would do", away, name, err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if _, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return User{}, status.Errorf(codes.Unauthenticated, "the client certificate of %q is none of this Kubernetes cluster: %v; a token of the same user would do", name, err)
	}
	if name == "" {
		return User{}, status.Error(codes.Unauthenticated, "the client certificate names no user: its common name is empty")
	}
	return User{Name: name, Groups: append(slices.Clone(leaf.Subject.Organization), "system:authenticated")}, nil
}

// Allow asks whether somebody may do a verb: read, write or link. The error says how to allow it.
func (r *Reviewer) Allow(ctx context.Context, user User, verb string) error {
	spec := map[string]any{
		"user": user.Name, "uid": user.UID, "groups": user.Groups, "extra": user.Extra,
		"resourceAttributes": map[string]string{"group": Group, "resource": Resource, "name": r.cluster, "verb": verb},
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	key := sha256.Sum256(text)
	if known, ok := r.allowed.get(key); ok {
		return known
	}
	var review struct {
		Status struct {
			Allowed bool   `json:"allowed"`
			Reason  string `json:"reason"`
		} `json:"status"`
	}
	if err := r.review(ctx, "authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews", spec, &review); err != nil {
		return err
	}
	if !review.Status.Allowed {
		err := status.Errorf(codes.PermissionDenied, "user %q may not %s in cluster %s: Kubernetes' RBAC allows no %s on %s.%s %q; bind the ClusterRole isthmus-operator-%s",
			user.Name, verb, r.cluster, verb, Resource, Group, r.cluster, verb)
		r.allowed.put(key, err, refusedFor)
		return err
	}
	r.allowed.put(key, nil, allowedFor)
	return nil
}

// away begins each error that says that the API server gave no answer. Nobody is let in then.
const away = "Kubernetes' API server"

// review has the API server answer a question.
func (r *Reviewer) review(ctx context.Context, group, kind, resource string, spec map[string]any, into any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	select {
	case r.asking <- struct{}{}:
		defer func() { <-r.asking }()
	case <-ctx.Done():
		return status.Errorf(codes.Unavailable, "%s is asked too much at once to know who calls; try again", away)
	}
	body, err := json.Marshal(map[string]any{"apiVersion": group + "/v1", "kind": kind, "spec": spec})
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	text, err := r.server.Call(ctx, apiserver.Request{
		Verb: "create", Method: http.MethodPost, Path: "/apis/" + group + "/v1/" + resource, ContentType: "application/json", Body: body,
	})
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if code := apiserver.Code(err); code == http.StatusForbidden || code == http.StatusUnauthorized {
		err = fmt.Errorf("%w; let the service's account create %s, as the ClusterRole isthmus-reviewer does", err, resource)
	}
	if err != nil {
		return status.Errorf(codes.Unavailable, "%s does not say who calls and what they may do, so nobody is let in: %v", away, err)
	}
	return nil
}
