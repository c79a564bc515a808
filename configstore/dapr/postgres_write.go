package dapr

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// writeTimeout is how long a batch may take, which can be many rows.
const writeTimeout = 30 * time.Second

// tries is how often a transaction is begun anew before its error is told. One that fails
// each time has another reason than a neighbour: a row that row level security hides, a
// second column that is unique.
const tries = 20

// commit is one transaction. Writers of Isthmus wait for each other by an advisory lock,
// and for who edits the rows by hand by the rows' locks.
func (p *postgresEngine) commit(ctx context.Context, paths []string, decide func(snapshot) (rewrite, error)) (err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	for n := range tries {
		var again bool
		again, err = p.try(ctx, paths, decide)
		switch codeOf(err) {
		case uniqueViolation, serializationFailure, deadlockDetected: // somebody wrote by hand at the same time
			again = true
		}
		if !again {
			break
		}
		select {
		case <-time.After(time.Duration(n) * 5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return readOnly(p.hint(err))
}

// try makes one transaction. again tells that none was begun, since the connection was no
// longer one.
func (p *postgresEngine) try(ctx context.Context, paths []string, decide func(snapshot) (rewrite, error)) (again bool, err error) {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return ctx.Err() == nil && conn.Conn().IsClosed(), err
	}
	defer rollback(ctx, tx)
	if err := p.transact(ctx, tx, paths, decide); err != nil {
		return false, err
	}
	return false, tx.Commit(ctx)
}

// rollback does nothing after a commit. By a dead link it takes at most a second more,
// and then closes the connection, which has the server roll back.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = tx.Rollback(ctx)
}

func (p *postgresEngine) transact(ctx context.Context, tx pgx.Tx, paths []string, decide func(snapshot) (rewrite, error)) error {
	lock := "isthmus " + p.table + " " + p.names.prefix
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", lock); err != nil {
		return err
	}
	keys := p.names.keys(append([]string{headPath}, paths...))
	rows, err := tx.Query(ctx, "SELECT key, value, version FROM "+p.table+" WHERE key = ANY($1) FOR UPDATE", keys)
	if err != nil {
		return err
	}
	was, err := p.collect(rows)
	if err != nil {
		return err
	}
	plan, err := decide(was)
	if err != nil {
		return err
	}
	batch := &pgx.Batch{}
	for _, e := range plan.edits {
		_, there := was.pairs[e.Path]
		p.queue(batch, e, plan.version(), there)
	}
	if head := plan.headText(); head != "" {
		p.queue(batch, configstore.Edit{Path: headPath, Value: []byte(head)}, plan.version(), was.head != "")
	}
	return tx.SendBatch(ctx, batch).Close()
}

func (p *postgresEngine) queue(batch *pgx.Batch, e configstore.Edit, version string, there bool) {
	key := p.names.key(e.Path)
	switch {
	case e.Value == nil:
		batch.Queue("DELETE FROM "+p.table+" WHERE key = $1", key)
	case there:
		batch.Queue("UPDATE "+p.table+" SET value = $2, version = $3 WHERE key = $1", key, string(e.Value), version)
	default:
		batch.Queue("INSERT INTO "+p.table+" (key, value, version) VALUES ($1, $2, $3)", key, string(e.Value), version)
	}
}
