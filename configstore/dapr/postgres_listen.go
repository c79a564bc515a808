package dapr

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// How soon a connection is given up that listens and has nothing to ask by.
var listenKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// listen has PostgreSQL tell what is notified, by a connection of its own: the pool may
// have but one. Subscribe of Dapr's store (1.18.1) does the same, and ends the process at a
// notification whose data has anything but text for a key, version or metadata. NOTIFY
// needs no permission, so that everybody who may connect to the database could.
func (p *postgresEngine) listen(ctx context.Context, to hints) error {
	if p.channel == "" {
		return errors.New("the component has no notifyChannel")
	}
	initial, done := context.WithTimeout(ctx, connectTimeout)
	defer done()
	config := p.pool.Config()
	config.ConnConfig.DialFunc = (&net.Dialer{KeepAliveConfig: listenKeepAlive}).DialContext
	if config.BeforeConnect != nil { // gets a token
		if err := config.BeforeConnect(initial, config.ConnConfig); err != nil {
			return err
		}
	}
	conn, err := pgx.ConnectConfig(initial, config.ConnConfig)
	if err != nil {
		return err
	}
	defer hangUp(ctx, conn)
	if _, err := conn.Exec(initial, "LISTEN "+pgx.Identifier{p.channel}.Sanitize()); err != nil {
		return fmt.Errorf("listen to %s: %w", p.channel, err)
	}
	to.begin()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if path, news := p.notified(n.Payload); path != "" {
			to.add(path)
		} else if news {
			to.add()
		}
	}
}

// hangUp takes at most a second.
func hangUp(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// notified is the path that a notification is about, or none, and whether it is worth a
// look. Anybody can notify anything: it is believed in nothing but that.
func (p *postgresEngine) notified(payload string) (path string, news bool) {
	var message struct{ Data struct{ Key string } }
	if err := json.Unmarshal([]byte(payload), &message); err != nil || message.Data.Key == "" {
		return "", true // of a trigger of the user's own, perhaps
	}
	key := message.Data.Key
	if path, ok := p.names.path(key); ok && askable(path) {
		return path, true
	}
	return "", key == p.names.key(headPath)
}

// askable tells whether every database takes this for a text: one with an encoding of its
// own takes ASCII, and none takes a NUL.
func askable(path string) bool {
	return !strings.ContainsFunc(path, func(c rune) bool { return c < ' ' || c > '~' })
}
