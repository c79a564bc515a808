package resolverservice

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/policies"
	"github.com/isthmus-mesh/isthmus/resolver-service/policies/keeper"
)

// Policies writes policies for the platform.
func (v *inventory) Policies(req *v1alpha1.PoliciesRequest, to grpc.ServerStreamingServer[v1alpha1.PoliciesResponse]) error {
	kind, err := policies.ParseKind(req.GetKind())
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	writer := policyWriter(&v.policies, v.identity)
	if writer.Sharing, err = v.topology.AccountsOf(to.Context()); err != nil {
		return err
	}
	apps, err := v.topology.Apps(to.Context())
	if err != nil {
		return err
	}
	filter := wants(req.GetApp().GetNamespace(), req.GetApp().GetId())
	apps = slices.DeleteFunc(apps, func(app catalog.App) bool { return !filter(app) })
	for some := range slices.Chunk(apps, perMessage) {
		fences, err := v.topology.Fences(to.Context(), some)
		if err != nil {
			return err
		}
		m := &v1alpha1.PoliciesResponse{}
		for i := range fences {
			objects, notes := writer.Write(kind, &fences[i])
			p := &v1alpha1.AppPolicy{App: wire.App(fences[i].App), Notes: notes}
			for i := range objects {
				p.Objects = append(p.Objects, objects[i].JSON())
			}
			m.Policies = append(m.Policies, p)
		}
		if err := to.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// policyWriter writes for apps whose trust domain is the service's own, unless the settings name
// another.
func policyWriter(settings *policies.Settings, source *identity.Source) policies.Writer {
	w := policies.Writer{Settings: *settings, Domain: settings.AppDomain}
	if id, ok := source.ID(); ok && w.Domain == "" && !source.Insecure() {
		w.Domain = id.TrustDomain
	}
	w.Domain = cmp.Or(w.Domain, "public") // as Dapr has it
	return w
}

// buildPolicies makes what keeps policies in Kubernetes, if the configuration asks for it.
func (s *Service) buildPolicies() error {
	k := s.cfg.Policies.Kubernetes
	if k == nil {
		return nil
	}
	api, err := apiserver.New(apiserver.Config{Kubeconfig: k.Kubeconfig, Context: k.Context})
	if err != nil {
		return strict.Below("policies.kubernetes", err)
	}
	identity := s.cfg.replica()
	if host, err := os.Hostname(); identity == "" && err == nil {
		identity = host
	}
	s.policies = keeper.New(keeper.Config{
		Kinds: k.Kinds, Writer: func() policies.Writer { return policyWriter(&s.cfg.Policies, s.identity) }, Cluster: s.cfg.Cluster, Namespace: s.cfg.Identity.Namespace,
		Identity: identity + "-" + rand.Text()[:8], Settled: s.sources.settled, Sound: s.sound,
	}, api, s.topology, s.log)
	s.accounts.Add(s.policies)
	return nil
}

// sound tells why the topology may lack an object or an instance; nil if it lacks none.
func (s *Service) sound() error {
	if _, ready := s.topology.Ready().Load(); !ready {
		return errors.New("the config store has not been read")
	}
	if _, ok := s.identity.ID(); !ok && !s.identity.Insecure() {
		return errors.New("the service has no certificate yet, which names the trust domain")
	}
	if err := s.feed.Status().Err; err != nil {
		return fmt.Errorf("config store: %w", err)
	}
	all, _ := s.sources.feed.Status().Load()
	for i := range all {
		if err := all[i].Err; err != nil {
			return fmt.Errorf("instances from %s: %w", all[i].Source, err)
		}
		if !all[i].Ready {
			return fmt.Errorf("instances from %s have not been read", all[i].Source)
		}
	}
	return nil
}

func (s *Service) addPolicies(answer *v1alpha1.StatusResponse) {
	if s.policies == nil {
		return
	}
	now := s.policies.Status()
	answer.Policies = &v1alpha1.PoliciesStatus{Leads: now.Leads, Holder: now.Holder, Objects: uint32(now.Objects), Pending: uint32(now.Pending), Writes: now.Writes, Left: now.Left}
	if now.Err != nil {
		answer.Policies.Error = now.Err.Error()
	}
}
