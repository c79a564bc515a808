package dapr

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// component1 has everything that Dapr's documentation shows, and what is for daprd alone.
const component1 = `
apiVersion: dapr.io/v1alpha1
kind: Component
metadata:
  name: config
  namespace: shop
  annotations: {any: thing}
spec:
  type: configuration.redis
  version: v1
  ignoreErrors: true
  initTimeout: 10s
  metadata:
  - name: redisHost
    value: localhost:6379
  - name: redisPassword
    secretKeyRef: {name: redis-secret, key: password}
  - name: redisUsername
    envRef: ISTHMUS_TEST_USER
  - name: redisDB
    value: 3
  - name: enableTLS
    value: false
  - name: redisMaxRetries
    value: "5"
auth:
  secretStore: kubernetes
scopes: [checkout]
`

const component2 = `
apiVersion: dapr.io/v1alpha1
kind: Component
metadata: {name: other}
spec:
  type: configuration.postgres
  version: v1
  metadata:
  - {name: connectionString, value: "host=db user=u password=s3cret-inline port=5433 database=x"}
  - {name: table, value: configtable}
---
apiVersion: dapr.io/v1alpha1
kind: Component
metadata: {name: state}
spec: {type: state.redis, version: v1, metadata: [{name: redisHost, value: "a:1"}]}
---
apiVersion: v1
kind: Secret
metadata: {name: unrelated}
`

func writeFile(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestComponentsAreTakenAsTheyAre(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("ISTHMUS_TEST_USER", "isthmus")
	secrets := filepath.Join(dir, "secrets")
	writeFile(t, filepath.Join(secrets, "redis-secret", "password"), "s3cret\n")
	one := writeFile(t, filepath.Join(dir, "both", "one.yaml"), component1)
	writeFile(t, filepath.Join(dir, "both", "two.yml"), component2)
	writeFile(t, filepath.Join(dir, "both", "notes.txt"), "no: [yaml")
	c, err := readComponent(one, "", secretSource(secrets))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"redisHost": "localhost:6379", "redisPassword": "s3cret", "redisUsername": "isthmus", "redisDB": "3", "enableTLS": "false", "redisMaxRetries": "5"} {
		if got := c.property(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if !slices.Equal(c.secrets, []string{"s3cret"}) {
		t.Errorf("%d secrets are hidden, want the password alone", len(c.secrets))
	}
	if c.kind != kindRedis || c.name != "config" {
		t.Errorf("component %+v; want config of Redis", c)
	}
	c, err = readComponent(filepath.Join(dir, "both"), "other", secretSource(secrets))
	if err != nil || c.kind != kindPostgres {
		t.Errorf("the one named: %+v, %v; want PostgreSQL's", c, err)
	}
	_, err = readComponent(filepath.Join(dir, "both"), "", secretSource(secrets))
	if err == nil || !strings.Contains(err.Error(), "config, other") || !strings.Contains(err.Error(), "name") {
		t.Errorf("of two: %v; want both named, and what to set", err)
	}
}

func TestSecretsAreFoundWhereDaprHasThem(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("ISTHMUS_TEST_SECRET", "from env")
	writeFile(t, filepath.Join(dir, "d", "redis", "password"), "from directory\n")
	writeFile(t, filepath.Join(dir, "d", "alone"), "from file")
	json := writeFile(t, filepath.Join(dir, "secrets.json"), `{"flat": "flat", "redis": {"password": "nested", "port": 6379}, "a": {"b": {"c": "deep"}}}`)
	broken := writeFile(t, filepath.Join(dir, "broken.json"), `{"redis": "s3cret`)
	for _, c := range []struct{ source, name, key, want, fails string }{
		{filepath.Join(dir, "d"), "redis", "password", "from directory", ""},
		{filepath.Join(dir, "d"), "alone", "", "from file", ""},
		{filepath.Join(dir, "d"), "redis", "user", "", "redis/user"},
		{filepath.Join(dir, "d"), "..", "secrets.json", "", "not a file below"},
		{filepath.Join(dir, "d"), "redis", "../../secrets.json", "", "not a file below"},
		{json, "flat", "flat", "flat", ""},
		{json, "redis", "password", "nested", ""},
		{json, "redis", "port", "6379", ""},
		{json, "a:b", "c", "deep", ""},
		{json, "redis", "nothing", "", `no secret "redis" with a key "nothing"`},
		{broken, "redis", "", "", "is no JSON object"},
		{"env", "ISTHMUS_TEST_SECRET", "", "from env", ""},
		{"env", "ISTHMUS_TEST_NOTHING", "", "", "has no ISTHMUS_TEST_NOTHING; set it"},
		{"", "redis", "password", "", "set secrets of this store to a directory with a file redis/password"},
	} {
		got, err := secretSource(c.source).read("vault", c.name, c.key)
		if got != c.want || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s/%s of %q: %q, %v; want %q, or an error with %q", c.name, c.key, c.source, got, err, c.want, c.fails)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
}

func TestMistakesInAComponentAreNamed(t *testing.T) {
	meta := func(kind string, lines ...string) string {
		return "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {name: c}\nspec:\n  type: " + kind + "\n  version: v1\n  metadata:\n" + strings.Join(lines, "\n") + "\n"
	}
	item := func(name, value string) string { return fmt.Sprintf("  - {name: %s, value: %q}", name, value) }
	for name, c := range map[string]struct {
		yaml, prefix, want string
	}{
		"no component":           {"a: b", "", "has no Dapr configuration store"},
		"not YAML":               {"a: [s3cret", "", "it is not YAML"},
		"another form":           {"spec: s3cret\nkind: Component", "", "line 1: not of the form"},
		"a kind nobody has":      {meta("configuration.etcd"), "", "unknown configuration store \"configuration.etcd\""},
		"another version":        {strings.Replace(meta(kindRedis), "version: v1", "version: v9", 1), "", `no version "v9"`},
		"no host":                {meta(kindRedis, item("redisPassword", "s3cret")), "", "redisHost is missing"},
		"two ports":              {meta(kindRedis, item("redisHost", "a:1"), item("redisPort", "2")), "", "redisPort"},
		"a cluster with no tag":  {meta(kindRedis, item("redisHost", "a:1"), item("redisType", "cluster")), "", "hash tag"},
		"no table":               {meta(kindPostgres, item("connectionString", "host=a password=s3cret")), "", "want the name of the table"},
		"a table to inject":      {meta(kindPostgres, item("connectionString", "host=a"), item("table", "a; drop table b")), "", "want the name of the table"},
		"a channel to inject":    {meta(kindPostgres, item("connectionString", "host=a"), item("table", "a"), item("notifyChannel", "a; b")), "", "want the name of a channel"},
		"a bad connection":       {meta(kindPostgres, item("connectionString", "postgres://u:s3cret@a:port/db"), item("table", "a")), "", "component c"},
		"no secret":              {meta(kindRedis, item("redisHost", "a:1"), "  - {name: redisPassword, secretKeyRef: {name: a, key: b}}"), "", "set secrets"},
		"no variable":            {meta(kindRedis, item("redisHost", "a:1"), "  - {name: redisPassword, envRef: ISTHMUS_TEST_NOTHING}"), "", "no ISTHMUS_TEST_NOTHING"},
		"no ConfigMap":           {meta(kindKubernetes), "", "configMapName is missing"},
		"a prefix with a point":  {meta(kindKubernetes, item("configMapName", "m")), "a.b/", "prefix"},
		"neither host nor key":   {meta(kindAzure), "", "want one of host and connectionString"},
		"a prefix with a space":  {meta(kindRedis, item("redisHost", "a:1")), "a b", "prefix"},
		"a setting with no name": {meta(kindRedis, "  - {value: x}"), "", "spec.metadata[0]: has no name"},
	} {
		if !withClouds && (strings.Contains(c.yaml, kindAzure) || strings.Contains(c.yaml, kindKubernetes)) {
			continue // TestComponentsLeftOut has these
		}
		file := writeFile(t, filepath.Join(t.TempDir(), "c.yaml"), c.yaml)
		_, err := Open(Config{Component: file, Prefix: c.prefix}, configstore.Scope{}, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want it to say %q", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error shows a secret: %v", name, err)
		}
	}
}

func TestGoodComponentsOpenWithNoServer(t *testing.T) {
	for name, yaml := range map[string]string{
		"azure":    "{apiVersion: dapr.io/v1alpha1, kind: Component, metadata: {name: c}, spec: {type: configuration.azure.appconfig, version: v1, metadata: [{name: connectionString, value: \"Endpoint=https://127.0.0.1:1;Id=a;Secret=czNjcmV0\"}]}}",
		"postgres": "{apiVersion: dapr.io/v1alpha1, kind: Component, metadata: {name: c}, spec: {type: configuration.postgres, metadata: [{name: url, value: \"postgres://u:s3cret@127.0.0.1:1/x\"}, {name: table, value: t}]}}",
	} {
		if !withClouds && name == "azure" {
			continue
		}
		file := writeFile(t, filepath.Join(t.TempDir(), "c.yaml"), yaml)
		begin := time.Now()
		s, err := Open(Config{Component: file}, configstore.Scope{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("%s: took %s", name, took)
		}
		err = s.Watch(t.Context(), "", func(configstore.Change) error { return nil })
		if err == nil || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "czNjcmV0") {
			t.Errorf("%s: watch with no server: %v; want an error with no secret", name, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func FuzzParseDocuments(f *testing.F) {
	f.Add([]byte(component1))
	f.Add([]byte(component2))
	f.Add([]byte("spec: {metadata: [{value: {a: [1, {b: !!binary aGk=}]}}]}\nkind: Component\napiVersion: dapr.io/v1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		documents, err := parseDocuments(text)
		if err != nil {
			return
		}
		for _, d := range documents {
			_, _ = resolve(d, "env")
		}
	})
}
