package main

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"time"

	consul "github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// kv is Consul's KV, by Consul's own client.
type kv struct{ *consul.KV }

func startConsul(ctx context.Context, dir string) (*subject, error) {
	server, err := servers.StartConsul(ctx, dir, servers.ConsulOptions{
		Settings: map[string]any{"telemetry": map[string]any{"prometheus_retention_time": "1h", "disable_hostname": true}},
	})
	if err != nil {
		return nil, err
	}
	client, err := consul.NewClient(&consul.Config{Address: server.URL()})
	if err != nil {
		return nil, errors.Join(err, server.Kill())
	}
	store := kv{client.KV()}
	count := counter{
		http.DefaultClient, server.URL() + "/v1/agent/metrics?format=prometheus",
		regexp.MustCompile(`^consul_api_http_count\{method="\w+",path="v1_(kv|txn|status|catalog|health)[^"]*"\}`),
	}
	settings := map[string]any{"consul": map[string]any{"address": server.URL()}}
	return &subject{
		settings: settings, fill: filler(dir, settings, 60, 1), put: store.put, watch: store.watch, requests: count.requests,
		port: portOf(server.Addr()), close: server.Kill,
	}, nil
}

func (s kv) put(ctx context.Context, object catalog.Object) error {
	pair := &consul.KVPair{Key: api.KeyPath(object.Key()), Value: api.EncodeJSON(object)}
	_, err := s.Put(pair, (&consul.WriteOptions{}).WithContext(ctx))
	return err
}

// watch is a blocking query for the one key.
func (s kv) watch(ctx context.Context, key catalog.Key, seen func([]byte)) error {
	options := (&consul.QueryOptions{WaitTime: 5 * time.Minute}).WithContext(ctx)
	for {
		pair, meta, err := s.Get(api.KeyPath(key), options)
		if err != nil {
			return err
		}
		if pair != nil && meta.LastIndex != options.WaitIndex {
			seen(pair.Value)
		}
		options.WaitIndex = meta.LastIndex
	}
}
