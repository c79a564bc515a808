package etcd

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
)

var _ configstore.Prober = (*Store)(nil)

// Server is that of configstore.Prober. Of several members it names one that answers.
func (s *Store) Server(ctx context.Context) (who string, err error) {
	err = s.Do(ctx, "ask for the version", func(ctx context.Context) (last error) {
		for _, endpoint := range s.config.Endpoints {
			timed, cancel := context.WithTimeout(ctx, s.config.Timeout)
			status, err := s.client.Status(timed, endpoint)
			cancel()
			if err == nil {
				who = fmt.Sprintf("etcd %s at %s, one of %d endpoints", status.Version, endpoint, len(s.config.Endpoints))
				return nil
			}
			last = err
		}
		return last
	})
	return who, err
}

// MayWrite is that of configstore.Prober. It asks to delete everything on a condition that
// no key can meet: etcd looks at permissions first.
func (s *Store) MayWrite(ctx context.Context) error {
	all := s.config.Prefix + api.KeyPrefix
	return s.Do(ctx, "ask for permission to write "+all, func(ctx context.Context) error {
		never := clientv3.Compare(clientv3.ModRevision(all), "=", -1)
		answer, err := s.commit(ctx, []clientv3.Cmp{never}, []clientv3.Op{clientv3.OpDelete(all, clientv3.WithPrefix())}, nil)
		if err == nil && answer.Succeeded {
			err = errors.New("the server met a condition that can't be met")
		}
		return err
	})
}
