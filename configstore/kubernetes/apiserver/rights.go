package apiserver

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Right is what RBAC may allow somebody to do.
type Right struct {
	Verb      string
	Group     string
	Resource  string // a subresource after a slash, as in a Role
	Namespace string // empty: in all, or of something that is in none
	Name      string // empty: any
}

// String says it as people do.
func (r Right) String() string {
	s := r.Verb + " " + r.Resource
	if r.Group != "" {
		s = r.Verb + " " + r.Resource + "." + r.Group
	}
	if r.Name != "" {
		s += " " + r.Name
	}
	if r.Namespace != "" {
		s += " in namespace " + r.Namespace
	}
	return s
}

// List says several rights as people do.
func List(rights []Right) string {
	all := make([]string, len(rights))
	for i, r := range rights {
		all[i] = r.String()
	}
	return strings.Join(all, ", ")
}

// Rights are all verbs on all resources of a group, in a namespace or in all.
func Rights(group, namespace string, resources []string, verbs ...string) (all []Right) {
	for _, verb := range verbs {
		for _, resource := range resources {
			all = append(all, Right{Verb: verb, Group: group, Resource: resource, Namespace: namespace})
		}
	}
	return all
}

// Role is a role of deploy/kubernetes with the rights that its holder needs.
type Role struct {
	Name   string
	Rights []Right
	// Optional is a role that many do without: who has nothing of it is meant to.
	Optional bool
}

// Account is this process to an API server, and the rights that it needs there.
type Account struct {
	Server *Server
	Roles  []Role
}

// asked is how many rights are asked for at once.
const asked = 8

// Lacking are those of the rights that the account does not have, in their order.
func (a *Server) Lacking(ctx context.Context, rights []Right) (lacking []Right, err error) {
	allowed := make([]bool, len(rights))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(asked)
	for i, r := range rights {
		group.Go(func() (err error) {
			allowed[i], err = a.Allows(ctx, r)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, r := range rights {
		if !allowed[i] {
			lacking = append(lacking, r)
		}
	}
	return lacking, nil
}

// Allows asks the API server whether we have a right, which anybody may.
func (a *Server) Allows(ctx context.Context, r Right) (bool, error) {
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	attributes := map[string]string{"verb": r.Verb, "group": r.Group, "resource": resource, "subresource": subresource, "namespace": r.Namespace, "name": r.Name}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": map[string]any{"resourceAttributes": attributes},
	})
	if err != nil {
		return false, err
	}
	body, err = a.Call(ctx, Request{
		Verb: "create", Method: http.MethodPost, Path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ContentType: "application/json", Body: body,
	})
	if err != nil {
		return false, err
	}
	var answer struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	err = json.Unmarshal(body, &answer)
	return answer.Status.Allowed, err
}
