// Package etcd is the config store in etcd, version 3: objects are keys with JSON below an optional
// prefix, written by transactions and watched from a revision.
//
// A Watch reads the full set at one revision, page by page, and then watches from the next on a
// stream of its own. The client library's watcher reconnects by itself and hides that. So nobody
// would learn that the store is away, or was put back to a backup. Here the end of a stream ends
// the Watch. The next Watch first asks whether the server is the one of the Version; see
// version.go.
//
// The Watch reads the stream as fast as the server sends, into a configstore.Pending. So a busy
// reader holds up no server, and nothing queues for it.
package etcd

import (
	"fmt"
	"log/slog"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/etcd/etcdclient"
)

// Store is a store in etcd. It is a configstore.ReadWriter.
type Store struct {
	configstore.KV
	config Config
	scope  configstore.Scope
	client *etcdclient.Client
	log    *slog.Logger

	life *configstore.Life
	kept configstore.Kept[*configstore.Ledger]
}

var (
	_ configstore.ReadWriter = (*Store)(nil)
	_ configstore.Historian  = (*Store)(nil)
	_ configstore.ManyGetter = (*Store)(nil)
)

// Open makes a store of a configuration, of which Watch and List read the scope. It reads
// the files of tls and asks no server.
func Open(c Config, scope configstore.Scope, log *slog.Logger) (*Store, error) {
	client, err := etcdclient.New(c)
	if err != nil {
		return nil, err
	}
	s := &Store{config: client.Config, scope: scope, client: client, log: log, life: configstore.NewLife()}
	s.KV = configstore.NewKV(configstore.KVServer{
		Name: "etcd", Prefix: s.config.Prefix, Life: s.life, MaxObject: maxObject(s.config), AtOnce: s.config.MaxTxnOps,
		Some: s.some, All: s.all, Commit: s.write, Create: s.create, Fail: s.fail,
	})
	return s, nil
}

// Close ends every Watch and every request, and waits for them.
func (s *Store) Close() error {
	if !s.life.Close() {
		return nil
	}
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("store etcd: close the connection to %s: %w", s.client.Servers(), err)
	}
	return nil
}
