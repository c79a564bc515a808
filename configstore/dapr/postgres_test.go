package dapr

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

const (
	adminPassword          = "s3cret-of-postgres"
	postgresPassword       = "s3cret of @ user"
	readerUser, writerUser = "isthmus-reader", "isthmus" // as docs/reference/stores/dapr.md calls them
	sidecarUser            = "isthmus-shop-checkout"
)

// page is docs/reference/stores/dapr.md, whose files and rights the tests run.
func page(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/stores/dapr.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block is the n-th block of code in a language.
func block(t testing.TB, language string, n int) string {
	t.Helper()
	parts := strings.Split(page(t), "```"+language+"\n")
	if len(parts) <= n+1 {
		t.Fatalf("the page has no block %d of %s", n, language)
	}
	text, _, _ := strings.Cut(parts[n+1], "```")
	return text
}

// postgresServer is a PostgreSQL, the link to it, and an operator of it. Every backend has
// a database of its own.
type postgresServer struct {
	*servers.Postgres
	link serverstest.Link
	ca   string
}

func startPostgres(t testing.TB) *postgresServer {
	t.Helper()
	cert, key, ca := authority(t)
	p := serverstest.Start(t, servers.StartPostgres, servers.PostgresOptions{
		Password: adminPassword, Cert: cert, Key: key,
		Config: []string{"fsync = off"}, // what a kill of a process loses is not what fsync is for
	})
	s := &postgresServer{p, serverstest.NewLink(t, p.Addr()), ca}
	for _, role := range []string{readerUser, writerUser, sidecarUser} {
		s.exec(t, "postgres", `CREATE ROLE "`+role+`" LOGIN PASSWORD '`+postgresPassword+`'`)
	}
	return s
}

// exec is done by the superuser, past the link.
func (p *postgresServer) exec(t testing.TB, database, sql string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		var conn *pgx.Conn
		if conn, err = pgx.Connect(ctx, p.URL(database)); err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		_, err = conn.Exec(ctx, sql, args...)
		_ = conn.Close(ctx)
		break
	}
	if err != nil {
		t.Fatal(err)
	}
}

// newDatabase makes a database with the table, and gives the users their rights. It is gone
// with the test, so that a backup of the server is small.
func (p *postgresServer) newDatabase(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("db%d", prefixes.Add(1))
	p.exec(t, "postgres", "CREATE DATABASE "+name)
	t.Cleanup(func() { p.exec(t, "postgres", "DROP DATABASE "+name+" WITH (FORCE)") })
	p.exec(t, name, block(t, "sql", 0))
	p.exec(t, name, block(t, "sql", 1))
	return name
}

func (p *postgresServer) settings(database, user, password string) map[string]string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(user, password), Host: p.link.Addr(), Path: database, RawQuery: "sslmode=disable"}
	return map[string]string{"connectionString": u.String(), "table": "configtable", "notifyChannel": "config"}
}

func (p *postgresServer) put(t testing.TB, database, key string, value []byte) {
	t.Helper()
	if value == nil {
		p.exec(t, database, "DELETE FROM configtable WHERE key = $1", key)
		return
	}
	p.exec(t, database, "INSERT INTO configtable VALUES ($1, $2, '1') ON CONFLICT (key) DO UPDATE SET value = excluded.value", key, string(value))
}

func (p *postgresServer) backend(t testing.TB) storetest.Backend {
	database, prefix := p.newDatabase(t), newPrefix()
	as := func(t testing.TB, scope configstore.Scope, settings map[string]string) configstore.ReadWriter {
		return openStore(t, Config{Component: yamlOf(t, kindPostgres, settings), Prefix: prefix}, scope)
	}
	return storetest.Backend{
		Open: func(t testing.TB) configstore.ReadWriter {
			return as(t, configstore.Scope{}, p.settings(database, writerUser, postgresPassword))
		},
		Elsewhere: func(t testing.TB) configstore.ReadWriter { return p.backend(t).Open(t) },
		Shared:    true,
		PutRaw: func(t testing.TB, _ configstore.ReadWriter, path string, value []byte) {
			p.put(t, database, prefix+path, value)
		},
		MaxObject: api.MaxObjectBytes,
		Fail:      func(t testing.TB, _ configstore.ReadWriter) func() { return p.link.Fail(t) },
		Restart:   func(t testing.TB, kill bool) { serverstest.Restart(t, p, kill) },
		Cut:       p.link.Cut,
		Slow:      p.link.Slow,
		Rewind:    p.rewind,
		Denied: func(t testing.TB) configstore.ReadWriter {
			return as(t, configstore.Scope{}, p.settings(database, writerUser, wrongPassword))
		},
		Unwritable: func(t testing.TB) configstore.ReadWriter {
			return as(t, configstore.Scope{}, p.settings(database, readerUser, postgresPassword))
		},
		WrongCA: func(t testing.TB) configstore.ReadWriter {
			_, _, other := authority(t)
			return as(t, configstore.Scope{}, map[string]string{
				"connectionString": fmt.Sprintf("host=127.0.0.1 port=%s user=isthmus database=%s sslmode=verify-full", portOf(p.link.Addr()), database),
				"password":         "s3cret-without-spaces", "sslRootCert": other, "table": "configtable",
			})
		},
		Scoped: func(t testing.TB, s configstore.Scope) configstore.ReadWriter {
			p.restrict(t, database, prefix, s)
			return as(t, s, p.settings(database, sidecarUser, postgresPassword))
		},
		Servers: []string{p.link.Addr()},
		Secrets: []string{adminPassword, postgresPassword, url.QueryEscape(postgresPassword), url.PathEscape(postgresPassword), wrongPassword, "s3cret-without-spaces"},
	}
}

// restrict lets the sidecar's user see just its rows, as docs/reference/stores/dapr.md says.
func (p *postgresServer) restrict(t testing.TB, database, prefix string, s configstore.Scope) {
	t.Helper()
	sql := strings.ReplaceAll(block(t, "sql", 2), "'"+api.KeyPrefix, "'"+prefix+api.KeyPrefix)
	p.exec(t, database, strings.ReplaceAll(sql, "shop/checkout'", s.App.Namespace+"/"+s.App.ID+"'"))
}

func portOf(address string) string {
	u, _ := url.Parse("tcp://" + address)
	return u.Port()
}

// rewind copies the data of the stopped server, and starts it again.
func (p *postgresServer) rewind(t testing.TB) (restore func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	restore = backup(t, p, p.Data())
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return restore
}

func TestStoreOnPostgres(t *testing.T) {
	t.Parallel() // each has a server of its own, and waits most of the time
	p := startPostgres(t)
	storetest.Run(t, func(t *testing.T) storetest.Backend { return p.backend(t) })
}
