// Package etcd is the config store in etcd, version 3: objects are keys with JSON below an
// optional prefix, written by transactions and watched from a revision.
//
// A Watch reads the full set at one revision, page by page, and then watches from the next
// on a stream of its own. It does so below the client library's watcher, which reconnects
// by itself and says nothing of it: then nobody would know that the store is away, nor
// that what answers at its address has since been put back to a backup. Here a stream that
// ends, ends the Watch, and the next Watch asks first whether the server still is the one
// that the Version is of; see version.go.
//
// The stream is read as fast as the server sends, into a configstore.Pending, so that a
// reader that is busy neither holds up the server nor has anything queue for it.
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
