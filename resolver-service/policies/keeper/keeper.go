// Package keeper keeps policies in a Kubernetes cluster: created, changed and deleted as the
// callers of apps do. It writes objects that carry its labels, and no others.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/policies"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Config says what a Keeper keeps, and where.
type Config struct {
	Kinds     []policies.Kind
	Writer    func() policies.Writer // it is called while Sound says nothing
	Cluster   string
	Namespace string // of the Lease
	Identity  string // of this replica; no two share one
	// Settled is closed once the topology has what it had before the service started.
	Settled <-chan struct{}
	// Sound tells why the topology may lack something. Nothing is written meanwhile.
	Sound func() error
}

// Status is how a Keeper is.
type Status struct {
	Leads   bool
	Holder  string // who leads
	Objects int    // that are kept
	Pending int    // that are not yet as they should be
	Writes  uint64
	Err     error    // of the last try; nil while all is well
	Left    []string // objects that somebody else made, sorted
}

// Keeper keeps policies.
type Keeper struct {
	cfg    Config
	api    *apiserver.Server
	top    *topology.Topology
	log    *throttle.Log
	lease  *lease
	mu     sync.Mutex
	status Status
}

// Manager is the field manager of the policies.
const Manager = "isthmus-policies"

// clusterLabel says whose an object is.
const clusterLabel = "isthmus.dev/cluster"

// New makes a Keeper, which Run makes work.
func New(c Config, api *apiserver.Server, top *topology.Topology, log *slog.Logger) *Keeper {
	return &Keeper{cfg: c, api: api, top: top, log: throttle.New(log, throttle.Interval), lease: &lease{
		api: api, folder: "/apis/coordination.k8s.io/v1/namespaces/" + c.Namespace + "/leases", name: "isthmus-policies-" + c.Cluster, holder: c.Identity,
	}}
}

// Status is how it is.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status
}

// AddStatus adds how it is to the status of the service.
func (k *Keeper) AddStatus(answer *v1alpha1.StatusResponse) {
	now := k.Status()
	answer.Policies = &v1alpha1.PoliciesStatus{Leads: now.Leads, Holder: now.Holder, Objects: uint32(now.Objects), Pending: uint32(now.Pending), Writes: now.Writes, Left: now.Left}
	if now.Err != nil {
		answer.Policies.Error = now.Err.Error()
	}
}

func (k *Keeper) update(f func(*Status)) {
	k.mu.Lock()
	f(&k.status)
	k.mu.Unlock()
}

// Pauses after failures.
const (
	firstPause   = 200 * time.Millisecond
	longestPause = 30 * time.Second
)

// Run keeps policies until ctx ends, while no other replica does.
func (k *Keeper) Run(ctx context.Context) error {
	defer k.api.Close()
	select {
	case <-k.cfg.Settled:
	case <-ctx.Done():
		return nil
	}
	for failures := 0; ctx.Err() == nil; {
		holder, err := k.lease.take(ctx)
		leads := err == nil && holder == k.cfg.Identity
		err = advise(err, leaseRole)
		k.update(func(s *Status) { s.Holder, s.Leads = holder, leads })
		if leads {
			began := time.Now()
			err = advise(k.leading(ctx), k.policiesRoles())
			if time.Since(began) > longestPause {
				failures = 0
			}
		}
		switch {
		case ctx.Err() != nil:
		case err == nil:
			failures = 0
			live.Sleep(ctx, renewEvery)
		case apiserver.Expired(err):
			live.Sleep(ctx, firstPause) // too much has happened since: everything is read anew
		default:
			failures++
			k.update(func(s *Status) { s.Err, s.Leads = err, false })
			k.log.Warn("policies", "policies in Kubernetes can't be kept; those that stand go on standing", "err", err)
			live.Sleep(ctx, live.Backoff(firstPause, longestPause, failures))
		}
	}
	return nil
}

// leaseRole is the role for the lease; for each kind of policy there is one more.
const leaseRole = "isthmus-policies-lease"

func policiesRole(kind policies.Kind) string { return "isthmus-policies-" + string(kind) }

func (k *Keeper) policiesRoles() string {
	var names []string
	for _, kind := range k.cfg.Kinds {
		names = append(names, policiesRole(kind))
	}
	return strings.Join(names, ", ")
}

// Account is what a Keeper needs in Kubernetes.
func (k *Keeper) Account() apiserver.Account {
	var roles []apiserver.Role
	for _, kind := range k.cfg.Kinds {
		role := apiserver.Role{Name: policiesRole(kind)}
		for _, r := range resourcesOf(kind) {
			group, _, _ := strings.Cut(r.version, "/")
			role.Rights = append(role.Rights, apiserver.Rights(group, "", []string{r.plural}, "get", "list", "watch", "create", "patch", "delete")...)
		}
		roles = append(roles, role)
	}
	lease := apiserver.Role{Name: leaseRole, Rights: apiserver.Rights("coordination.k8s.io", k.cfg.Namespace, []string{"leases"}, "get", "create", "update")}
	return apiserver.Account{Server: k.api, Roles: append(roles, lease)}
}

// advise adds what to do about an error.
func advise(err error, role string) error {
	if apiserver.Code(err) == http.StatusForbidden {
		return fmt.Errorf("%w (%w); give the account the role %s in deploy/kubernetes/rbac.yaml", err, configstore.ErrDenied, role)
	}
	return err
}

// leading writes policies while the lease is kept, and lets go of it in the end.
func (k *Keeper) leading(ctx context.Context) error {
	inside, cancel := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() { cancel(k.lease.renew(inside)) })
	err := k.keep(inside, cancel)
	if cause := context.Cause(inside); ctx.Err() == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	cancel(nil)
	renewing.Wait()
	k.update(func(s *Status) { s.Leads = false })
	k.lease.release()
	return err
}

// keep brings the cluster to what should be, and keeps it there. fail ends ctx.
func (k *Keeper) keep(ctx context.Context, fail context.CancelCauseFunc) error {
	changes, err := k.top.FollowFences(ctx)
	if err != nil {
		return err
	}
	defer changes.Close()
	b := newReconciler(k)
	var streams sync.WaitGroup
	defer streams.Wait()
	defer fail(nil)
	for i := range b.resources {
		version, err := b.list(ctx, i)
		if err != nil {
			return err
		}
		streams.Go(func() { fail(b.follow(ctx, i, version)) })
	}
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		var wait time.Duration
		if err := k.cfg.Sound(); err != nil {
			err = fmt.Errorf("waiting, since something may be missing: %w", err)
			k.update(func(s *Status) { s.Err = err })
			wait = time.Second
		} else {
			select {
			case <-changes.Changed():
				if err := b.refresh(ctx, changes); err != nil {
					return err
				}
			default:
			}
			b.hear()
			wait = b.work(ctx)
		}
		retry.Reset(wait)
		select {
		case <-retry.C:
		case <-b.news.News():
		case <-changes.Changed():
			changes.Again()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// refresh works out what should be of the apps that have changed.
func (b *reconciler) refresh(ctx context.Context, changes *topology.FenceChanges) error {
	apps, all := changes.Take()
	if all {
		var err error
		if apps, err = b.k.top.Inventory().Apps(ctx); err != nil {
			return err
		}
		apps = slices.AppendSeq(apps, maps.Keys(b.byApp))
		slices.SortFunc(apps, catalog.App.Compare)
		apps = slices.Compact(apps)
	}
	for some := range slices.Chunk(apps, 256) {
		fences, err := b.k.top.Inventory().Fences(ctx, some)
		if err != nil {
			return err
		}
		here := map[catalog.App]*topology.Fence{}
		for i := range fences {
			here[fences[i].App] = &fences[i]
		}
		for _, app := range some {
			b.want(app, here[app])
		}
	}
	return nil
}

// resource is a kind of object in the API.
type resource struct {
	version, kind, plural string
}

func (r *resource) path(namespace string) string {
	if namespace == "" {
		return "/apis/" + r.version + "/" + r.plural
	}
	return "/apis/" + r.version + "/namespaces/" + namespace + "/" + r.plural
}

// resourcesOf are those that a kind of policy is made of.
func resourcesOf(kind policies.Kind) []resource {
	switch kind {
	case policies.Istio:
		return []resource{{"security.istio.io/v1", "AuthorizationPolicy", "authorizationpolicies"}}
	case policies.Linkerd:
		return []resource{
			{"policy.linkerd.io/v1alpha1", "MeshTLSAuthentication", "meshtlsauthentications"},
			{"policy.linkerd.io/v1beta3", "Server", "servers"},
			{"policy.linkerd.io/v1alpha1", "AuthorizationPolicy", "authorizationpolicies"},
		}
	case policies.Dapr:
		return []resource{{"dapr.io/v1alpha1", "Configuration", "configurations"}}
	case policies.Network:
		return []resource{{"networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"}}
	}
	return nil
}

func sorted(all map[key]string) (texts []string) {
	for _, text := range all {
		texts = append(texts, text)
	}
	slices.SortFunc(texts, strings.Compare)
	return texts
}
