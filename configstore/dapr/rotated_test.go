package dapr

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// A password changes at the server and in the file of the secret, and the connections end. Writers and
// readers come back by themselves, and a new file alone disturbs nobody.
func TestAPasswordThatWasChangedIsFollowed(t *testing.T) {
	const next = "the-next-one"
	for _, c := range []struct {
		kind, secret string
		// start returns the link, the other settings, the secret of before and of after, and what makes it count.
		start func(t *testing.T) (link serverstest.Link, others map[string]string, before, after string, change func())
	}{
		{kindRedis, "redisPassword", func(t *testing.T) (serverstest.Link, map[string]string, string, string, func()) {
			r := startRedis(t)
			return r.link, map[string]string{"redisHost": r.link.Addr()}, redisPassword, next, func() {
				if err := r.admin.ConfigSet(t.Context(), "requirepass", next).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{kindPostgres, "connectionString", func(t *testing.T) (serverstest.Link, map[string]string, string, string, func()) {
			p := startPostgres(t)
			database := p.newDatabase(t)
			others, after := p.settings(database, writerUser, postgresPassword), p.settings(database, writerUser, next)["connectionString"]
			before := others["connectionString"]
			delete(others, "connectionString")
			return p.link, others, before, after, func() {
				p.exec(t, "postgres", `ALTER ROLE "`+writerUser+`" PASSWORD '`+next+`'`)
			}
		}},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			link, others, before, after, change := c.start(t)
			secrets := t.TempDir()
			write := func(text string) {
				if err := os.MkdirAll(filepath.Join(secrets, "config"), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(secrets, "config", "secret"), []byte(text+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(before)
			component := yamlOf(t, c.kind, others)
			text, err := os.ReadFile(component)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, "  - name: "+c.secret+"\n    secretKeyRef: {name: config, key: secret}\n"...)
			if err := os.WriteFile(component, text, 0o600); err != nil {
				t.Fatal(err)
			}
			s := storetest.Closing(t, openStore(t, Config{Component: component, Secrets: secrets, Prefix: newPrefix()}, configstore.Scope{}))
			got := storetest.Follow(t, s)
			storetest.Put(t, s, cluster("east", "a"))
			got.AwaitClusters("east=a")
			change()
			write(after)
			link.Fail(t)()
			serverstest.Await(t, "a write by the new password", func() bool {
				_, err := s.Write(t.Context(), configstore.Write{Object: cluster("east", "b")})
				return err == nil
			})
			got.AwaitClusters("east=b")
		})
	}
}
