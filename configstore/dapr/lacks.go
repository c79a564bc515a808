package dapr

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/isthmus-mesh/isthmus/configstore"
)

var _ configstore.Lacker = (*Store)(nil)

// lacker is an engine whose server can be asked for what it lacks.
type lacker interface {
	// lacks is empty where nothing is known to be missing. known tells whether notifications were
	// looked at; every is how long a change then takes.
	lacks(ctx context.Context, every time.Duration) (what string, known bool, err error)
}

// Lacks is that of configstore.Lacker. Where the server doesn't tell whether it notifies, what
// readers have found out counts, until they are told of a change again.
func (s *Store) Lacks(ctx context.Context) (all []string, err error) {
	err = s.with(ctx, "ask for settings", func(ctx context.Context, l *lease) error {
		what, known := "", false
		if e, ok := l.engine.(lacker); ok {
			if what, known, err = e.lacks(ctx, s.config.Heartbeat); err != nil {
				return err
			}
		}
		if what != "" {
			all = append(all, what)
		}
		if !known && s.untold.Load() {
			all = append(all, untold(l.settings.component.kind, s.config.Heartbeat))
		}
		return nil
	})
	return all, err
}

// notifies are what to do where a server tells nobody of changes.
var notifies = map[string]string{
	kindRedis:    "set notify-keyspace-events to Kg$ in redis.conf",
	kindPostgres: "let a trigger on the table notify the component's notifyChannel",
}

func untold(kind string, every time.Duration) string {
	return fmt.Sprintf("the server tells nobody of changes, so each takes up to %s; %s, on each replica too that may be promoted", every, notifies[kind])
}

// lacks asks Redis whether it notifies, which takes the permission config|get.
func (r *redisEngine) lacks(ctx context.Context, every time.Duration) (what string, known bool, err error) {
	const setting = "notify-keyspace-events"
	answer, err := r.do(ctx, "CONFIG", "GET", setting)
	events := ""
	switch pair := answer.(type) {
	case map[any]any: // by the third version of the protocol
		events = fmt.Sprint(pair[setting])
	case []any:
		events = strings.TrimPrefix(fmt.Sprint(pair...), setting)
	}
	if err != nil || answer == nil {
		return "", false, nil // a managed server has no CONFIG; one that is away is told of elsewhere
	}
	if strings.Contains(events, "K") && (strings.Contains(events, "A") || strings.Contains(events, "g") && strings.Contains(events, "$")) {
		return "", true, nil
	}
	return untold(kindRedis, every), true, nil
}

// tooLong is PostgreSQL's word for a notification of more than 8,000 bytes, of code
// invalidParameter.
const (
	invalidParameter = "22023"
	tooLong          = "payload string too long"
	shorterTrigger   = "the trigger on the table notifies the whole row, and PostgreSQL takes 8,000 bytes; let it notify the key alone, as the one in docs/reference/stores/dapr.md does"
)

func isTooLong(err error) bool {
	return codeOf(err) == invalidParameter && strings.Contains(err.Error(), tooLong)
}

// rowProbe remembers how a large row went, since each try leaves a dead row in the table.
type rowProbe struct {
	mu    sync.Mutex
	tried time.Time
	what  string
}

// again has the next look try it.
func (r *rowProbe) again() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried = time.Time{}
}

// How long a row is, and how often it is tried where the last went well, and where not.
const (
	longRow      = 8100
	longRowGood  = 10 * time.Minute
	longRowWrong = 20 * time.Second
)

// lacks inserts a row that is longer than a notification, and rolls that back.
func (p *postgresEngine) lacks(ctx context.Context, _ time.Duration) (what string, known bool, err error) {
	r := &p.longRow
	r.mu.Lock()
	defer r.mu.Unlock()
	if age := time.Since(r.tried); age < longRowWrong || r.what == "" && age < longRowGood {
		return r.what, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	key := p.names.key(ownMark + "probe-" + configstore.NewNonce())
	err = pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO "+p.table+" (key, value, version) VALUES ($1, $2, '1')", key, strings.Repeat(" ", longRow)); err != nil {
			return err
		}
		return errProbed
	})
	switch {
	case isTooLong(err):
		r.what = "an object of 8,000 bytes and more can't be written: " + shorterTrigger
	case errors.Is(err, errProbed), codeOf(err) != "": // who may not write is told elsewhere
		r.what = ""
	default:
		return r.what, false, err
	}
	r.tried = time.Now()
	return r.what, false, nil
}
