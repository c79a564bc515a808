package dapr

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dapr/kit/config"
	"github.com/redis/go-redis/v9"

	"github.com/isthmus-mesh/isthmus/api"
)

// redisChunk is how many keys one MGET reads, and one SCAN looks at.
const (
	redisChunk = 200
	redisScan  = 1000
)

// valueMark stands between value and version in Dapr's Redis store.
const valueMark = "||"

// redisSettings are the properties of Dapr's component, read as it reads them.
type redisSettings struct {
	Host               string        `mapstructure:"redisHost"` // several with commas between them
	Port               uint16        `mapstructure:"redisPort"`
	Username           string        `mapstructure:"redisUsername"`
	Password           string        `mapstructure:"redisPassword"`
	DB                 int           `mapstructure:"redisDB"`
	Type               string        `mapstructure:"redisType"`
	Failover           bool          `mapstructure:"failover"`
	SentinelMasterName string        `mapstructure:"sentinelMasterName"`
	SentinelUsername   string        `mapstructure:"sentinelUsername"`
	SentinelPassword   string        `mapstructure:"sentinelPassword"`
	EnableTLS          bool          `mapstructure:"enableTLS"`
	InsecureTLS        bool          `mapstructure:"insecureSkipTLSVerify"`
	ClientCert         string        `mapstructure:"clientCert"` // in PEM, as its key
	ClientKey          string        `mapstructure:"clientKey"`
	MaxRetries         int           `mapstructure:"redisMaxRetries"`
	MinRetryInterval   redisDuration `mapstructure:"redisMinRetryInterval"`
	MaxRetryInterval   redisDuration `mapstructure:"redisMaxRetryInterval"`
	DialTimeout        redisDuration `mapstructure:"dialTimeout"`
	ReadTimeout        redisDuration `mapstructure:"readTimeout"`
	WriteTimeout       redisDuration `mapstructure:"writeTimeout"`
	PoolSize           int           `mapstructure:"poolSize"`
	PoolTimeout        redisDuration `mapstructure:"poolTimeout"`
	MinIdleConns       int           `mapstructure:"minIdleConns"`
	MaxConnAge         redisDuration `mapstructure:"maxConnAge"`
	IdleTimeout        redisDuration `mapstructure:"idleTimeout"`
}

// redisDuration is written as one of Go, or as a number of milliseconds; a negative number is for the
// client of Redis.
type redisDuration time.Duration

// DecodeString is that of Dapr's config.StringDecoder.
func (d *redisDuration) DecodeString(text string) error {
	n, err := strconv.Atoi(text)
	if err == nil && n < 0 {
		*d = redisDuration(n)
		return nil
	}
	if err == nil {
		text += "ms"
	}
	parsed, err := time.ParseDuration(text)
	*d = redisDuration(parsed)
	return err
}

// redisCluster is the redisType of a Redis Cluster.
const redisCluster = "cluster"

func parseRedisSettings(c component) (redisSettings, error) {
	s := redisSettings{MaxRetries: 3, MinRetryInterval: redisDuration(8 * time.Millisecond), MaxRetryInterval: redisDuration(2 * time.Second)}
	if err := config.Decode(maps.Clone(c.properties), &s); err != nil || s.Host == "" {
		return s, err
	}
	hosts := strings.Split(s.Host, ",")
	for i, host := range hosts {
		host = strings.TrimSpace(host)
		switch _, port, err := net.SplitHostPort(host); {
		case err != nil:
			host = net.JoinHostPort(host, strconv.Itoa(int(cmp.Or(s.Port, 6379))))
		case s.Port != 0 && port != strconv.Itoa(int(s.Port)):
			return s, fmt.Errorf("redisHost has port %s, and redisPort is %d; leave one of them out", port, s.Port)
		}
		hosts[i] = host
	}
	s.Host = strings.Join(hosts, ",")
	return s, nil
}

// redisEngine reads and writes Redis as Dapr's component does by the same YAML.
type redisEngine struct {
	settings
	client  redis.UniversalClient
	db      int
	cluster bool // keys lie on one of several servers: by the prefix's hash tag
}

func checkRedis(c component, n names) error {
	s, err := parseRedisSettings(c)
	if err != nil {
		return fmt.Errorf("component %s: %w", c.name, err)
	}
	if s.Host == "" {
		return fmt.Errorf("component %s: redisHost is missing; give it host:port", c.name)
	}
	if strings.ContainsAny(s.Host, "/@") { // it is not shown: a URL may have a password
		return fmt.Errorf("component %s: redisHost is no host:port; give redisUsername, redisPassword and enableTLS for what a URL has besides", c.name)
	}
	tag := strings.Index(n.prefix, "{")
	if s.Type == redisCluster && (tag < 0 || strings.Index(n.prefix[tag:], "}") < 2) {
		return fmt.Errorf("component %s: a Redis Cluster writes together only what lies together; set prefix to one with a hash tag, such as \"{isthmus}/\"", c.name)
	}
	if byEntraID(c) && !withClouds {
		return leftOut(c, "useEntraID")
	}
	return nil
}

// byEntraID tells whether each connection logs on by a token of Microsoft Entra ID.
func byEntraID(c component) bool {
	return strings.EqualFold(c.property("useEntraID", "useAzureAD"), "true")
}

// redisHost is host:port, or several.
func redisHost(c component) string {
	s, err := parseRedisSettings(c)
	if err != nil {
		return c.property("redisHost")
	}
	return s.Host
}

// connectRedis makes the client, which connects when it is first asked for something.
func connectRedis(s settings) (engine, error) {
	redirectRedisLog(s.logger())
	with, err := parseRedisSettings(s.component)
	if err != nil {
		return nil, err
	}
	o := &redis.UniversalOptions{
		Addrs: strings.Split(with.Host, ","), DB: with.DB, Username: with.Username, Password: with.Password, IsClusterMode: with.Type == redisCluster,
		SentinelUsername: with.SentinelUsername, SentinelPassword: with.SentinelPassword,
		MaxRetries: with.MaxRetries, MinRetryBackoff: time.Duration(with.MinRetryInterval), MaxRetryBackoff: time.Duration(with.MaxRetryInterval),
		DialTimeout: time.Duration(with.DialTimeout), ReadTimeout: time.Duration(with.ReadTimeout), WriteTimeout: time.Duration(with.WriteTimeout),
		PoolSize: with.PoolSize, PoolTimeout: time.Duration(with.PoolTimeout), MinIdleConns: with.MinIdleConns,
		ConnMaxLifetime: time.Duration(with.MaxConnAge), ConnMaxIdleTime: time.Duration(with.IdleTimeout), ContextTimeoutEnabled: true,
	}
	if with.Failover {
		o.MasterName = with.SentinelMasterName
	}
	if with.EnableTLS {
		o.TLSConfig = &tls.Config{InsecureSkipVerify: with.InsecureTLS} //nolint:gosec // as the component says
	}
	if with.EnableTLS && with.ClientCert != "" && with.ClientKey != "" {
		cert, err := tls.X509KeyPair([]byte(with.ClientCert), []byte(with.ClientKey))
		if err != nil {
			return nil, fmt.Errorf("clientCert: %w", err)
		}
		o.TLSConfig.Certificates = []tls.Certificate{cert}
	}
	if byEntraID(s.component) {
		o.CredentialsProviderContext = func(ctx context.Context) (user, password string, err error) {
			return entraID(ctx, s.component)
		}
	}
	return &redisEngine{settings: s, client: redis.NewUniversalClient(o), db: with.DB, cluster: o.IsClusterMode}, nil
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
		value, err := r.client.Do(ctx, args...).Result()
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
