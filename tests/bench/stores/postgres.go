package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// postgres is PostgreSQL, by pgx.
type postgres struct {
	*pgx.Conn        // of the superuser
	url       string // by which a watcher connects
}

// postgresTable is the table, the trigger and the user of docs/reference/stores/dapr.md.
const postgresTable = `
CREATE EXTENSION pg_stat_statements;
CREATE ROLE isthmus LOGIN PASSWORD 'isthmus';
CREATE TABLE configtable (
  key      VARCHAR PRIMARY KEY,
  value    VARCHAR NOT NULL,
  version  VARCHAR NOT NULL,
  metadata JSON
);
GRANT SELECT, INSERT, UPDATE, DELETE ON configtable TO isthmus;
CREATE FUNCTION configtable_notify() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  changed configtable;
  message text;
BEGIN
  IF TG_OP = 'DELETE' THEN changed := OLD; ELSE changed := NEW; END IF;
  changed.metadata := NULL;
  message := json_build_object('table', TG_TABLE_NAME, 'action', TG_OP, 'data', changed)::text;
  IF octet_length(message) > 7900 THEN
    changed.value := '';
    message := json_build_object('table', TG_TABLE_NAME, 'action', TG_OP, 'data', changed)::text;
  END IF;
  PERFORM pg_notify('config', message);
  RETURN NULL;
END $$;
CREATE TRIGGER configtable_notify AFTER INSERT OR UPDATE OR DELETE ON configtable
  FOR EACH ROW EXECUTE FUNCTION configtable_notify();
`

const postgresComponent = `apiVersion: dapr.io/v1alpha1
kind: Component
metadata: {name: config}
spec:
  type: configuration.postgresql
  version: v1
  metadata:
  - {name: connectionString, value: "postgres://isthmus:isthmus@%s/postgres?sslmode=disable"}
  - {name: table, value: configtable}
  - {name: notifyChannel, value: config}
`

func startPostgres(ctx context.Context, dir string) (*subject, error) {
	server, err := servers.StartPostgres(ctx, dir, servers.PostgresOptions{
		Config: []string{"shared_preload_libraries = 'pg_stat_statements'"},
	})
	if err != nil {
		return nil, err
	}
	url := server.URL("postgres")
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, errors.Join(err, server.Kill())
	}
	store := postgres{conn, url}
	component := filepath.Join(dir, "postgres.yaml")
	settings := map[string]any{"dapr": map[string]any{"component": component}}
	s := &subject{
		settings: settings, fill: filler(dir, settings, 500, 1),
		put: store.put, watch: store.watch, requests: store.requests, port: portOf(server.Addr()),
		close: func() error { return errors.Join(conn.Close(context.Background()), server.Kill()) },
	}
	_, err = conn.Exec(ctx, postgresTable)
	if err := errors.Join(err, os.WriteFile(component, fmt.Appendf(nil, postgresComponent, server.Addr()), 0o600)); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s postgres) put(ctx context.Context, object catalog.Object) error {
	_, err := s.Exec(ctx, "UPDATE configtable SET value = $2 WHERE key = $1", api.KeyPath(object.Key()), string(api.EncodeJSON(object)))
	return err
}

// watch listens to the channel, which brings the row.
func (s postgres) watch(ctx context.Context, key catalog.Key, seen func([]byte)) (err error) {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.Background())) }()
	if _, err := conn.Exec(ctx, "LISTEN config"); err != nil {
		return err
	}
	path := api.KeyPath(key)
	var value string
	if err := conn.QueryRow(ctx, "SELECT value FROM configtable WHERE key = $1", path).Scan(&value); err != nil {
		return err
	}
	for seen([]byte(value)); ; {
		told, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		var message struct {
			Data struct{ Key, Value string }
		}
		if err := json.Unmarshal([]byte(told.Payload), &message); err != nil {
			return err
		}
		if message.Data.Key == path {
			seen([]byte(message.Data.Value))
		}
	}
}

// requests are the statements of the service's user.
func (s postgres) requests(ctx context.Context) (calls int, err error) {
	const sum = "SELECT coalesce(sum(s.calls), 0)::bigint FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid WHERE r.rolname = 'isthmus'"
	err = s.QueryRow(ctx, sum).Scan(&calls)
	return calls, err
}
