package consul

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/consul/agent"
)

var _ configstore.Prober = (*Store)(nil)

// Server is that of configstore.Prober. The version is told to tokens with agent read
// only.
func (s *Store) Server(ctx context.Context) (who string, err error) {
	err = s.Do(ctx, "ask who leads", func(ctx context.Context) error {
		leader, err := s.client.Status().LeaderWithQueryOptions((&api.QueryOptions{}).WithContext(ctx))
		if err == nil && leader == "" {
			err = agent.ErrNoLeader
		}
		who = fmt.Sprintf("Consul at %s, led by %s", s.config.Address, leader)
		return err
	})
	return who, err
}

// MayWrite is that of configstore.Prober. It asks for writes whose condition can't hold:
// Consul looks at permissions first.
func (s *Store) MayWrite(ctx context.Context) error {
	return s.Do(ctx, "ask for permission to write "+s.base(), s.mayWrite)
}

func (s *Store) mayWrite(ctx context.Context) error {
	var ops api.KVTxnOps
	for _, name := range []string{headName, "ActorType/" + headName, "AppEndpoints/" + headName, "AppExport/" + headName, "AppInstance/" + headName, "Cluster/" + headName} {
		ops = append(ops, &api.KVTxnOp{Verb: api.KVCAS, Key: s.base() + name, Index: math.MaxInt64})
	}
	s.place(ops)
	ok, answer, _, err := s.client.KV().Txn(ops, (&api.QueryOptions{}).WithContext(ctx))
	if err == nil && ok {
		err = errors.New("it accepted a write for a revision that can't be")
	}
	if err == nil {
		err = refused(s, answer.Errors)
	}
	if err == configstore.ErrRaced {
		return nil
	}
	return err
}
