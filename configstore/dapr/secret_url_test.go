package dapr

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// TestConnectionStringsThatCanNotBeReadAreNotShown: their errors quote them.
func TestConnectionStringsThatCanNotBeReadAreNotShown(t *testing.T) {
	for _, text := range []string{
		"postgres://isthmus:hunter2%t@db:5432/config", "postgres://isthmus:hunter2:x@db:port/config", "postgres://isthmus:hunter2/x@db:5432/config",
		"postgres://isthmus:a@hunter2@db:5432x/config", "postgres://isthmus:hunter2 x@db:5432/config", "postgres://isthmus:a#hunter2@db/config",
		"postgres://db:5432x/config?user=isthmus&password=hunter2", "host=db port=x password=hunter2", "host=db port=x password='a hunter2'",
		"host=db port=x password = hunter2", `host=db port=x password='a\' hunter2'`,
	} {
		file := yamlOf(t, kindPostgres, map[string]string{"connectionString": text, "table": "configtable"})
		s, err := Open(Config{Component: file}, configstore.Scope{}, slog.New(slog.DiscardHandler))
		if err == nil {
			_ = s.Close()
			continue
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, host := range []string{"redis://:hunter2@db:6379", "isthmus:hunter2@db:6379"} {
		_, err := Open(Config{Component: yamlOf(t, kindRedis, map[string]string{"redisHost": host})}, configstore.Scope{}, slog.New(slog.DiscardHandler))
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "redisHost") {
			t.Errorf("%s: %v; want an error that names redisHost and does not show it", host, err)
		}
	}
	said := &scrubber{}
	said.add(parts("Endpoint=https://x.azconfig.io;Id=abc;Secret=hunter2==")...)
	if got := said.text("bad secret hunter2== of x.azconfig.io"); got != "bad secret *** of x.azconfig.io" {
		t.Error(got)
	}
}
