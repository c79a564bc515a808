package dapr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dapr/kit/metadata"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// postgres is a component's settings for PostgreSQL, read as Dapr's store reads them.
type postgres struct {
	pool    *pgxpool.Config
	table   pgx.Identifier
	channel string // of NOTIFY; empty where there is none
	cloud   bool   // each connection logs on by a token of a cloud
}

// postgresSettings are the properties of Dapr's component.
type postgresSettings struct {
	ConnectionString      string        `mapstructure:"connectionString" mapstructurealiases:"url"`
	Host                  string        `mapstructure:"host"` // this and others say otherwise than the string
	HostAddr              string        `mapstructure:"hostaddr"`
	Port                  string        `mapstructure:"port"`
	Database              string        `mapstructure:"database"`
	User                  string        `mapstructure:"user"`
	Password              string        `mapstructure:"password"`
	SSLRootCert           string        `mapstructure:"sslRootCert"`
	QueryExecMode         string        `mapstructure:"queryExecMode"`
	ConnectionMaxIdleTime time.Duration `mapstructure:"connectionMaxIdleTime"`
	MaxConns              int32         `mapstructure:"maxConns"`
	UseAzureAD            bool          `mapstructure:"useAzureAD"`
	UseAWSIAM             bool          `mapstructure:"useAWSIAM"`
	Table                 string        `mapstructure:"table"`
	NotifyChannel         string        `mapstructure:"notifyChannel" mapstructurealiases:"pgNotifyChannel"`
}

// pool is how to connect.
func (s *postgresSettings) pool() (*pgxpool.Config, error) {
	said := [][2]string{
		{"host", cmp.Or(s.HostAddr, s.Host)}, {"port", s.Port}, {"user", s.User}, {"password", s.Password}, {"database", s.Database},
		{"sslrootcert", s.SSLRootCert}, {"default_query_exec_mode", s.QueryExecMode},
	}
	said = slices.DeleteFunc(said, func(one [2]string) bool { return one[1] == "" })
	text := s.ConnectionString
	if strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://") {
		u, err := url.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("invalid URL connection string: %w", err)
		}
		q := u.Query()
		for _, one := range said {
			q.Set(one[0], one[1])
		}
		u.RawQuery = q.Encode()
		text = u.String()
	} else {
		for _, one := range said { // the last one counts
			text += " " + one[0] + "='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(one[1]) + "'"
		}
	}
	if text == "" {
		return nil, errors.New("connectionString is missing")
	}
	pool, err := pgxpool.ParseConfig(text)
	if err != nil { // it quotes the string, and hides not all secrets in it
		why := err.Error()
		if i := strings.LastIndex(why, "`: "); i >= 0 {
			why = why[i+3:]
		}
		return nil, fmt.Errorf("connectionString can't be read: %s", why)
	}
	if s.ConnectionMaxIdleTime > 0 {
		pool.MaxConnIdleTime = s.ConnectionMaxIdleTime
	}
	if s.MaxConns > 1 {
		pool.MaxConns = s.MaxConns
	}
	return pool, nil
}

// connectTimeout is how long it may take to log on, which is a conversation.
const connectTimeout = 7 * time.Second

// pingAfter is for how long a connection is believed that nothing was asked by. It is
// longer than a heartbeat, so that a heartbeat is one request.
const pingAfter = 15 * time.Second

// identifier is what Dapr's store takes for names of tables and channels.
var identifier = regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+)?$`)

// undefinedTable is PostgreSQL's code for a table that is not there; see
// https://www.postgresql.org/docs/current/errcodes-appendix.html for all of these.
const (
	undefinedTable        = "42P01"
	insufficientPrivilege = "42501"
	uniqueViolation       = "23505"
	serializationFailure  = "40001"
	deadlockDetected      = "40P01"
	readOnlyTransaction   = "25006"
)

func parsePostgres(c component) (postgres, error) {
	var m postgresSettings
	fail := func(err error) (postgres, error) {
		return postgres{}, fmt.Errorf("component %s: %w", c.name, err)
	}
	properties := maps.Clone(c.properties)
	if err := metadata.DecodeMetadata(properties, &m); err != nil {
		return fail(err)
	}
	if !identifier.MatchString(m.Table) {
		return fail(fmt.Errorf("table %q: want the name of the table, in lower case", m.Table))
	}
	if m.NotifyChannel != "" && !identifier.MatchString(m.NotifyChannel) {
		return fail(fmt.Errorf("notifyChannel %q: want the name of a channel, in lower case", m.NotifyChannel))
	}
	if m.UseAWSIAM && !withClouds {
		return fail(leftOut(c, "useAWSIAM"))
	}
	if m.UseAzureAD && !withClouds {
		return fail(leftOut(c, "useAzureAD"))
	}
	cloud := m.UseAWSIAM || m.UseAzureAD
	if cloud {
		if err := checkCloud(c); err != nil {
			return fail(err)
		}
	}
	pool, err := m.pool()
	if err != nil {
		return fail(err)
	}
	if pool.ConnConfig.ConnectTimeout == 0 || pool.ConnConfig.ConnectTimeout > connectTimeout {
		pool.ConnConfig.ConnectTimeout = connectTimeout
	}
	pool.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > pingAfter }
	pool.ConnConfig.RuntimeParams["application_name"] = "isthmus"
	return postgres{pool, strings.Split(m.Table, "."), m.NotifyChannel, cloud}, nil
}

// postgresEngine reads and writes the table of Dapr's PostgreSQL store.
type postgresEngine struct {
	settings
	pool    *pgxpool.Pool
	table   string // quoted
	channel string // of NOTIFY; empty where there is none
	longRow rowProbe
}

// connectPostgres makes the pool, which connects when it is first asked for something.
func connectPostgres(ctx context.Context, s settings) (engine, error) {
	p, err := parsePostgres(s.component)
	if err != nil {
		return nil, err
	}
	if p.cloud {
		if err := useCloud(ctx, s, p.pool); err != nil {
			return nil, err
		}
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), p.pool)
	if err != nil {
		return nil, err
	}
	return &postgresEngine{settings: s, pool: pool, table: p.table.Sanitize(), channel: p.channel}, nil
}

func (p *postgresEngine) close() { p.pool.Close() }

// list is one statement, and so of one moment.
func (p *postgresEngine) list(ctx context.Context) (snapshot, error) {
	if p.names.scope.All() {
		return p.read(ctx, "starts_with(key, $1) AND key <> $2", p.names.key(api.KeyPrefix), p.names.key(identityPath))
	}
	own := p.names.keys([]string{headPath, p.names.own()})
	return p.read(ctx, "key = ANY($1) OR starts_with(key, $2)", own, p.names.key(clusterPaths))
}

func (p *postgresEngine) some(ctx context.Context, paths []string) (snapshot, error) {
	return p.read(ctx, "key = ANY($1)", p.names.keys(append([]string{headPath}, paths...)))
}

func (p *postgresEngine) read(ctx context.Context, where string, args ...any) (snapshot, error) {
	got, broken, err := p.ask(ctx, where, args...)
	if broken { // the server has been started again since; a new connection will do
		got, _, err = p.ask(ctx, where, args...)
	}
	return got, p.hint(err)
}

// ask is one query. broken tells that the connection was no longer one.
func (p *postgresEngine) ask(ctx context.Context, where string, args ...any) (got snapshot, broken bool, err error) {
	timeout := connectTimeout
	if p.pool.Stat().IdleConns() > 0 {
		timeout = requestTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return snapshot{}, false, err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, "SELECT key, value, version FROM "+p.table+" WHERE "+where, args...)
	if err == nil {
		got, err = p.collect(rows)
	}
	return got, err != nil && ctx.Err() == nil && conn.Conn().IsClosed(), err
}

// collect takes rows, of which several may have the same key: Dapr's table need not have
// a primary key, and its store then takes the highest version.
func (p *postgresEngine) collect(rows pgx.Rows) (snapshot, error) {
	defer rows.Close()
	got := snapshot{whole: true, pairs: map[string]held{}}
	for rows.Next() {
		var key string
		var h held
		if err := rows.Scan(&key, &h.value, &h.version); err != nil {
			return snapshot{}, err
		}
		if key == p.names.key(headPath) {
			got.head = h.value
			continue
		}
		path, ok := p.names.named(key)
		if was, doubled := got.pairs[path]; ok && (!doubled || number(h.version) > number(was.version)) {
			got.pairs[path] = h
		}
	}
	return got, rows.Err()
}

// number is a version as Dapr's store compares it.
func number(version string) int {
	n, err := strconv.Atoi(version)
	if err != nil {
		return -1
	}
	return n
}

// hint says what to do about some errors.
func (p *postgresEngine) hint(err error) error {
	if err == nil {
		return nil
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case invalidParameter:
		if isTooLong(err) {
			p.longRow.again()
			return fmt.Errorf("%w; %s", err, shorterTrigger)
		}
	case undefinedTable:
		return fmt.Errorf("%w; make the table that docs/reference/stores/dapr.md shows", err)
	case insufficientPrivilege:
		return fmt.Errorf("%w; GRANT it to the user of the component", err)
	}
	return err
}

func codeOf(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// readOnly marks an error that says that this user, or this server, can't be written.
func readOnly(err error) error {
	switch codeOf(err) {
	case insufficientPrivilege, readOnlyTransaction:
		return fmt.Errorf("%w: %w", configstore.ErrReadOnly, err)
	}
	return err
}
