package etcd

import (
	"context"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isthmus-mesh/isthmus/configstore"
)

var _ configstore.Identifier = (*Store)(nil)

// Identity is that of configstore.Identifier: a key, and not the cluster id, which is a hash of the
// members' names and so is the same in two clusters that were set up alike.
func (s *Store) Identity(ctx context.Context, anew string) (string, error) {
	ctx, leave, err := s.life.Enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	key := s.config.Prefix + configstore.IdentityPath
	answer, err := s.get(ctx, key)
	if err == nil && len(answer.Kvs) == 0 && anew != "" {
		absent := clientv3.Compare(clientv3.ModRevision(key), "=", 0)
		if _, err = s.commit(ctx, []clientv3.Cmp{absent}, []clientv3.Op{clientv3.OpPut(key, anew)}, nil); err == nil {
			answer, err = s.get(ctx, key)
		}
	}
	switch {
	case rpctypes.Error(err) == rpctypes.ErrPermissionDenied:
		return "", nil
	case err != nil:
		return "", s.fail(ctx, "read or write "+key, err)
	case len(answer.Kvs) == 0:
		return "", nil
	}
	return string(answer.Kvs[0].Value), nil
}
