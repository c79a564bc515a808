package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// redis is Redis, by go-redis.
type redis struct{ *goredis.Client }

const redisComponent = `apiVersion: dapr.io/v1alpha1
kind: Component
metadata: {name: config}
spec:
  type: configuration.redis
  version: v1
  metadata:
  - {name: redisHost, value: %q}
`

func startRedis(ctx context.Context, dir string) (*subject, error) {
	server, err := servers.StartRedis(ctx, dir, servers.RedisOptions{Config: []string{"notify-keyspace-events Kg$"}})
	if err != nil {
		return nil, err
	}
	store := redis{goredis.NewClient(&goredis.Options{Addr: server.Addr()})}
	component := filepath.Join(dir, "redis.yaml")
	settings := map[string]any{"dapr": map[string]any{"component": component}}
	return &subject{
		settings: settings, fill: filler(dir, settings, 200, 1),
		put: store.put, watch: store.watch, requests: store.requests, port: portOf(server.Addr()),
		close: func() error { return errors.Join(store.Close(), server.Kill()) },
	}, os.WriteFile(component, fmt.Appendf(nil, redisComponent, server.Addr()), 0o600)
}

// put writes an object, and appends its key to the head, as docs/reference/stores/dapr.md says that
// people do.
func (s redis) put(ctx context.Context, object catalog.Object) error {
	_, err := s.TxPipelined(ctx, func(p goredis.Pipeliner) error {
		p.Set(ctx, api.KeyPath(object.Key()), api.EncodeJSON(object), 0)
		p.Append(ctx, api.KeyPrefix+"_head", "+"+strings.TrimPrefix(api.KeyPath(object.Key()), api.KeyPrefix))
		return nil
	})
	return err
}

// watch is told that the key has changed, and gets it: what Dapr's own store does.
func (s redis) watch(ctx context.Context, key catalog.Key, seen func([]byte)) (err error) {
	path := api.KeyPath(key)
	subscription := s.Subscribe(ctx, "__keyspace@0__:"+path)
	defer func() { err = errors.Join(err, subscription.Close()) }()
	if _, err := subscription.Receive(ctx); err != nil {
		return err
	}
	for told := subscription.Channel(); ; {
		value, err := s.Get(ctx, path).Bytes()
		if err != nil {
			return err
		}
		seen(value)
		select {
		case <-told:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// requests are all commands but the one that asks this.
func (s redis) requests(ctx context.Context) (int, error) {
	text, err := s.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	sum := 0
	for line := range strings.Lines(text) {
		_, rest, ok := strings.Cut(line, ":calls=")
		if !ok || strings.HasPrefix(line, "cmdstat_info") {
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		n, err := strconv.Atoi(calls)
		if err != nil {
			return 0, fmt.Errorf("INFO commandstats: %q: %w", line, err)
		}
		sum += n
	}
	return sum, nil
}
