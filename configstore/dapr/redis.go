package dapr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	contrib "github.com/dapr/components-contrib/common/component/redis"
	"github.com/dapr/components-contrib/metadata"
	"github.com/dapr/kit/logger"

	"github.com/isthmus-mesh/isthmus/api"
)

// redisChunk is how many keys one MGET reads, and one SCAN looks at.
const (
	redisChunk = 200
	redisScan  = 1000
)

// valueMark stands between value and version in Dapr's Redis store.
const valueMark = "||"

// redisEngine reads and writes Redis by the very client that Dapr's component makes of
// its YAML, so that every setting of it holds here too.
type redisEngine struct {
	settings
	client  contrib.RedisClient
	db      int
	cluster bool // keys lie on one of several servers: by the prefix's hash tag
}

func checkRedis(c component, n names) error {
	var s contrib.Settings
	if err := s.Decode(maps.Clone(c.properties)); err != nil {
		return fmt.Errorf("component %s: %w", c.name, err)
	}
	if s.Host == "" {
		return fmt.Errorf("component %s: redisHost is missing; give it host:port", c.name)
	}
	if strings.ContainsAny(s.Host, "/@") { // it is not shown: a URL may have a password
		return fmt.Errorf("component %s: redisHost is no host:port; give redisUsername, redisPassword and enableTLS for what a URL has besides", c.name)
	}
	tag := strings.Index(n.prefix, "{")
	if s.RedisType == contrib.ClusterType && (tag < 0 || strings.Index(n.prefix[tag:], "}") < 2) {
		return fmt.Errorf("component %s: a Redis Cluster writes together only what lies together; set prefix to one with a hash tag, such as \"{isthmus}/\"", c.name)
	}
	return nil
}

// redisHost is host:port, or several.
func redisHost(c component) string {
	var s contrib.Settings
	if err := s.Decode(maps.Clone(c.properties)); err != nil {
		return c.property("redisHost")
	}
	return s.Host
}

func connectRedis(ctx context.Context, s settings) (engine, error) {
	redirectRedisLog(s.logger())
	log := logger.Logger(s.logger())
	client, with, err := contrib.ParseClientFromProperties(maps.Clone(s.component.properties), metadata.ConfigurationStoreType, ctx, &log)
	if err != nil {
		return nil, err
	}
	return &redisEngine{settings: s, client: client, db: with.DB, cluster: with.RedisType == contrib.ClusterType}, nil
}

func (r *redisEngine) close() { _ = r.client.Close() }

// list reads the head before the keys: what is written meanwhile shows by it.
func (r *redisEngine) list(ctx context.Context) (snapshot, error) {
	first, err := r.some(ctx, nil)
	if err != nil {
		return snapshot{}, err
	}
	paths, err := r.paths(ctx)
	if err != nil {
		return snapshot{}, err
	}
	all := snapshot{head: first.head, pairs: make(map[string]held, len(paths)), denied: map[string]error{}}
	for chunk := range slices.Chunk(paths, redisChunk) {
		if err := r.read(ctx, chunk, &all); err != nil {
			return snapshot{}, err
		}
	}
	return all, nil
}

// paths is every path that there may be: of the indexes and, for who may, of a scan.
func (r *redisEngine) paths(ctx context.Context) ([]string, error) {
	found := map[string]bool{}
	for _, kind := range r.names.kinds() {
		members, err := r.strings(ctx, "SMEMBERS", r.names.key(indexPath+kind))
		if err != nil {
			return nil, err
		}
		for _, member := range members {
			if path := api.KeyPrefix + member; r.names.has(path) {
				found[path] = true
			}
		}
	}
	if !r.names.scope.All() {
		found[r.names.own()] = true
		return slices.Sorted(maps.Keys(found)), nil
	}
	if r.cluster {
		return slices.Sorted(maps.Keys(found)), nil
	}
	err := r.scan(ctx, func(key string) {
		if path, ok := r.names.path(key); ok {
			found[path] = true
		}
	})
	if noPermission(err) {
		r.once.Warn("scan", "no permission to SCAN Redis: of keys written by hand only those in the index are found", "err", r.scrub.err(err))
		err = nil
	}
	return slices.Sorted(maps.Keys(found)), err
}

func (r *redisEngine) scan(ctx context.Context, visit func(key string)) error {
	pattern := globEscape.Replace(r.names.key(api.KeyPrefix)) + "*"
	cursor := "0"
	for {
		answer, err := r.do(ctx, "SCAN", cursor, "MATCH", pattern, "COUNT", redisScan)
		if err != nil {
			return err
		}
		parts, ok := answer.([]any)
		if !ok || len(parts) != 2 {
			return fmt.Errorf("SCAN answered %T", answer)
		}
		keys, ok := parts[1].([]any)
		if !ok {
			return fmt.Errorf("SCAN answered %T for keys", parts[1])
		}
		for _, key := range keys {
			visit(fmt.Sprint(key))
		}
		if cursor = fmt.Sprint(parts[0]); cursor == "0" {
			return nil
		}
	}
}

var globEscape = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// some reads everything by one MGET, which is of one moment, as long as all may be read.
func (r *redisEngine) some(ctx context.Context, paths []string) (snapshot, error) {
	got := snapshot{pairs: make(map[string]held, len(paths)), denied: map[string]error{}}
	err := r.read(ctx, append([]string{headPath}, paths...), &got)
	if err != nil {
		return snapshot{}, err
	}
	if err := got.denied[headPath]; err != nil {
		return snapshot{}, err
	}
	got.head = got.pairs[headPath].value
	delete(got.pairs, headPath)
	return got, nil
}

// read adds what is under the paths. A path without permission makes Redis refuse the
// whole request, so it is searched for by halves.
func (r *redisEngine) read(ctx context.Context, paths []string, into *snapshot) error {
	texts, err := r.texts(ctx, paths)
	switch {
	case noPermission(err) && len(paths) > 1:
		half := len(paths) / 2
		return errors.Join(r.read(ctx, paths[:half], into), r.read(ctx, paths[half:], into))
	case noPermission(err):
		into.denied[paths[0]] = fmt.Errorf("no permission to read it: %w", r.scrub.err(err))
		return nil
	}
	for path, text := range texts {
		into.pairs[path] = parseRedis(path, text)
	}
	return err
}

// texts is what is under keys, as it is.
func (r *redisEngine) texts(ctx context.Context, paths []string) (map[string]string, error) {
	args := []any{"MGET"}
	for _, key := range r.names.keys(paths) {
		args = append(args, key)
	}
	answer, err := r.do(ctx, args...)
	if err != nil {
		return nil, err
	}
	values, ok := answer.([]any)
	if !ok || len(values) != len(paths) {
		return nil, fmt.Errorf("MGET answered %T for %d keys", answer, len(paths))
	}
	texts := make(map[string]string, len(paths))
	for i, value := range values {
		if text, ok := value.(string); ok {
			texts[paths[i]] = text
		}
	}
	return texts, nil
}

// parseRedis reads a value as Dapr's store does. The head has no version.
func parseRedis(path, text string) held {
	if path == headPath {
		return held{value: text}
	}
	parts := strings.Split(text, valueMark)
	if len(parts) == 1 {
		return held{value: text}
	}
	return held{value: parts[0], version: parts[1]}
}

func (r *redisEngine) strings(ctx context.Context, args ...any) ([]string, error) {
	answer, err := r.do(ctx, args...)
	if err != nil {
		return nil, err
	}
	var texts []string
	switch list := answer.(type) {
	case []any:
		for _, text := range list {
			texts = append(texts, fmt.Sprint(text))
		}
	case map[any]any: // a set, by the third version of the protocol
		for text := range list {
			texts = append(texts, fmt.Sprint(text))
		}
	default: // is not nothing
		return nil, fmt.Errorf("%v answered %T", args[0], answer)
	}
	return texts, nil
}

// do asks Redis. The client minds a context's deadline but not its end, so who asks does
// not wait for it then.
func (r *redisEngine) do(ctx context.Context, args ...any) (any, error) {
	type answer struct {
		value any
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	got := make(chan answer, 1)
	go func() {
		value, err := r.client.DoRead(ctx, args...)
		got <- answer{value, err}
	}()
	select {
	case a := <-got:
		return a.value, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// noPermission tells whether Redis refused because of its access control list.
func noPermission(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOPERM")
}
