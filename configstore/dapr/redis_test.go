package dapr

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

const (
	redisPassword = "s3cret-of-redis"
	wrongPassword = "wr0ng-of-redis"
)

// redisServer is a Redis, the link to it, and an operator of it.
type redisServer struct {
	*servers.Redis
	link  serverstest.Link
	tls   string // host:port
	admin *goredis.Client
}

func startRedis(t testing.TB) *redisServer {
	t.Helper()
	cert, key, _ := authority(t)
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	r := serverstest.Start(t, servers.StartRedis, servers.RedisOptions{Config: []string{
		"requirepass " + redisPassword, "notify-keyspace-events Kg$",
		"appendfsync no", // what a kill of a process loses is not what fsync is for
		fmt.Sprintf("tls-port %d", port), "tls-cert-file " + cert, "tls-key-file " + key, "tls-auth-clients no",
	}})
	admin := goredis.NewClient(&goredis.Options{Addr: r.Addr(), Password: redisPassword})
	t.Cleanup(func() { _ = admin.Close() })
	return &redisServer{r, serverstest.NewLink(t, r.Addr()), fmt.Sprintf("127.0.0.1:%d", port), admin}
}

// settings is those of a component for a user, by the link.
func (r *redisServer) settings(user, password string) map[string]string {
	s := map[string]string{"redisHost": r.link.Addr(), "redisPassword": password}
	if user != "" {
		s["redisUsername"] = user
	}
	return s
}

// user makes a user by rules of an access control list.
func (r *redisServer) user(t testing.TB, rules string) (name string) {
	t.Helper()
	name = fmt.Sprintf("user%d", prefixes.Add(1))
	args := []any{"ACL", "SETUSER", name, "reset", "on", ">" + redisPassword}
	for _, rule := range strings.Fields(rules) {
		args = append(args, rule)
	}
	if err := r.admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	return name
}

// put is what an operator does by hand: the value, and a word to the head.
func (r *redisServer) put(t testing.TB, prefix, path string, value []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	_, err := r.admin.TxPipelined(ctx, func(p goredis.Pipeliner) error {
		if value == nil {
			p.Del(ctx, prefix+path)
		} else {
			p.Set(ctx, prefix+path, value, 0)
		}
		p.Append(ctx, prefix+headPath, "+"+strings.TrimPrefix(path, api.KeyPrefix))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (r *redisServer) backend(t testing.TB) storetest.Backend {
	prefix := newPrefix()
	own := Config{Component: yamlOf(t, kindRedis, r.settings("", redisPassword)), Prefix: prefix}
	as := func(t testing.TB, scope configstore.Scope, settings map[string]string) configstore.ReadWriter {
		return openStore(t, Config{Component: yamlOf(t, kindRedis, settings), Prefix: prefix}, scope)
	}
	return storetest.Backend{
		Open:      func(t testing.TB) configstore.ReadWriter { return openStore(t, own, configstore.Scope{}) },
		Elsewhere: func(t testing.TB) configstore.ReadWriter { return r.backend(t).Open(t) },
		Shared:    true,
		PutRaw:    func(t testing.TB, _ configstore.ReadWriter, path string, value []byte) { r.put(t, prefix, path, value) },
		MaxObject: api.MaxObjectBytes,
		Fail:      func(t testing.TB, _ configstore.ReadWriter) func() { return r.link.Fail(t) },
		Restart:   func(t testing.TB, kill bool) { serverstest.Restart(t, r, kill) },
		Cut:       r.link.Cut,
		Slow:      r.link.Slow,
		Rewind:    func(t testing.TB) func() { return backup(t, r, filepath.Join(r.Data(), "appendonlydir")) },
		Denied: func(t testing.TB) configstore.ReadWriter {
			return as(t, configstore.Scope{}, r.settings("", wrongPassword))
		},
		Blind: func(t testing.TB, path string) configstore.ReadWriter {
			rules := strings.Replace(pageRules(t, "isthmus-reader", prefix), "~"+prefix+api.KeyPrefix+"*", allBut(prefix, path), 1)
			user := r.user(t, rules)
			return as(t, configstore.Scope{}, r.settings(user, redisPassword))
		},
		Unwritable: func(t testing.TB) configstore.ReadWriter {
			user := r.user(t, pageRules(t, "isthmus-reader", prefix))
			return as(t, configstore.Scope{}, r.settings(user, redisPassword))
		},
		WrongCA: func(t testing.TB) configstore.ReadWriter {
			return as(t, configstore.Scope{}, map[string]string{"redisHost": r.tls, "redisPassword": redisPassword, "enableTLS": "true"})
		},
		Scoped: func(t testing.TB, s configstore.Scope) configstore.ReadWriter {
			rules := pageRules(t, "isthmus-shop-checkout", prefix)
			user := r.user(t, strings.ReplaceAll(rules, "shop/checkout", s.App.Namespace+"/"+s.App.ID))
			return as(t, s, r.settings(user, redisPassword))
		},
		Servers: []string{r.link.Addr(), r.tls},
		Secrets: []string{redisPassword, wrongPassword},
	}
}

// pageRules is what docs/reference/stores/dapr.md has a user be given, with the prefix.
func pageRules(t testing.TB, user, prefix string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page(t), "\nuser "+user+" on >PASSWORD ")
	if !ok {
		t.Fatalf("the page has no user %s", user)
	}
	rules, _, _ := strings.Cut(rest, "\n")
	return strings.ReplaceAll(rules, api.KeyPrefix, prefix+api.KeyPrefix)
}

// allBut is the patterns of every key of ours except one cluster's: Redis has none that
// take away.
func allBut(prefix, path string) string {
	root := prefix + api.KeyPrefix
	name := strings.TrimPrefix(path, clusterPaths)
	return "~" + root + "_* ~" + root + "App* ~" + root + "Cluster/[^" + name[:1] + "]*"
}

func TestStoreOnRedis(t *testing.T) {
	t.Parallel() // each has a server of its own, and waits most of the time
	r := startRedis(t)
	storetest.Run(t, func(t *testing.T) storetest.Backend { return r.backend(t) })
}
