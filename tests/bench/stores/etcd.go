package main

import (
	"context"
	"errors"
	"net/http"
	"regexp"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// etcd is etcd, by its own client.
type etcd struct{ *clientv3.Client }

// etcdBatch is how many operations etcd takes in one transaction if it is not told
// otherwise.
const etcdBatch = 128

func startEtcd(ctx context.Context, dir string) (*subject, error) {
	server, err := servers.StartEtcd(ctx, dir, servers.EtcdOptions{})
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.URL()}, Logger: zap.NewNop()})
	if err != nil {
		return nil, errors.Join(err, server.Kill())
	}
	// Messages and not calls: in the one call of a watch, each question is a message.
	count := counter{
		http.DefaultClient, server.URL() + "/metrics",
		regexp.MustCompile(`^grpc_server_msg_received_total\{[^}]*grpc_service="etcdserverpb\.[^}]*\}`),
	}
	store := etcd{client}
	settings := map[string]any{"etcd": map[string]any{"endpoints": []string{server.URL()}}}
	return &subject{
		settings: settings, fill: filler(dir, settings, 100, 1), put: store.put, watch: store.watch, requests: count.requests,
		port:  portOf(server.Addr()),
		close: func() error { return errors.Join(client.Close(), server.Kill()) },
	}, nil
}

func (s etcd) put(ctx context.Context, object catalog.Object) error {
	_, err := s.Put(ctx, api.KeyPath(object.Key()), string(api.EncodeJSON(object)))
	return err
}

// watch reads the one key and watches it from there.
func (s etcd) watch(ctx context.Context, key catalog.Key, seen func([]byte)) error {
	path := api.KeyPath(key)
	now, err := s.Get(ctx, path)
	if err != nil {
		return err
	}
	changes := s.Watch(ctx, path, clientv3.WithRev(now.Header.Revision+1), clientv3.WithCreatedNotify())
	for answer := range changes {
		if err := answer.Err(); err != nil {
			return err
		}
		if answer.Created {
			for _, pair := range now.Kvs {
				seen(pair.Value)
			}
		}
		for _, event := range answer.Events {
			seen(event.Kv.Value)
		}
	}
	return ctx.Err()
}
