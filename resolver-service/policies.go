package resolverservice

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/policies"
	"github.com/isthmus-mesh/isthmus/resolver-service/policies/keeper"
)

// policyWriter writes policies as of now.
func (s *Service) policyWriter() policies.Writer {
	return policies.NewWriter(s.cfg.Policies, s.identity)
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
		Kinds: k.Kinds, Writer: s.policyWriter, Cluster: s.cfg.Cluster, Namespace: s.cfg.Identity.Namespace,
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
