package consul

import (
	"context"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/consul/agent"
)

var _ configstore.Identifier = (*Store)(nil)

// Identity is that of configstore.Identifier.
func (s *Store) Identity(ctx context.Context, anew string) (string, error) {
	ctx, leave, err := s.life.Enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	key := s.config.Prefix + configstore.IdentityPath
	pair, _, err := s.client.KV().Get(key, consistent(limited))
	if err == nil && pair == nil && anew != "" {
		options := &api.WriteOptions{Namespace: s.config.Namespace, Partition: s.config.Partition}
		absent := &api.KVPair{Key: key, Value: []byte(anew)} // of ModifyIndex 0
		if _, _, err = s.client.KV().CAS(absent, options.WithContext(limited)); err == nil {
			pair, _, err = s.client.KV().Get(key, consistent(limited))
		}
	}
	switch {
	case err != nil && agent.Forbidden(err):
		return "", nil
	case err != nil:
		return "", s.failed(limited, err, "read or write %s", key)
	case pair == nil:
		return "", nil
	}
	return string(pair.Value), nil
}
