package consul

import (
	"context"
	"fmt"
	"math"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/consul/agent"
)

var _ configstore.Prober = (*Store)(nil)

// Server is that of configstore.Prober. The version is told to tokens with agent read
// only.
func (s *Store) Server(ctx context.Context) (string, error) {
	ctx, leave, err := s.life.Enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	leader, err := s.client.Status().LeaderWithQueryOptions((&api.QueryOptions{}).WithContext(ctx))
	if err == nil && leader == "" {
		err = agent.ErrNoLeader
	}
	if err != nil {
		return "", s.failed(ctx, err, "ask who leads")
	}
	return fmt.Sprintf("Consul at %s, led by %s", s.config.Address, leader), nil
}

// MayWrite is that of configstore.Prober. It asks for writes whose condition can't hold:
// Consul looks at permissions first.
func (s *Store) MayWrite(ctx context.Context) error {
	ctx, leave, err := s.life.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	var ops api.KVTxnOps
	for _, name := range []string{headName, "ActorType/" + headName, "AppEndpoints/" + headName, "AppExport/" + headName, "AppInstance/" + headName, "Cluster/" + headName} {
		ops = append(ops, &api.KVTxnOp{Verb: api.KVCAS, Key: s.base() + name, Index: math.MaxInt64})
	}
	s.place(ops)
	ok, answer, _, err := s.client.KV().Txn(ops, (&api.QueryOptions{}).WithContext(ctx))
	switch {
	case err != nil:
		return s.failed(ctx, err, "ask for permission to write %s", s.base())
	case ok:
		return s.failed(ctx, fmt.Errorf("it accepted a write for a revision that can't be"), "ask for permission to write %s", s.base())
	}
	if err := s.refused(answer.Errors); err != errBusy {
		return s.failed(ctx, err, "ask for permission to write %s", s.base())
	}
	return nil
}
