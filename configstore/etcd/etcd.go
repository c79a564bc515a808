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
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// A connection on which nothing has come for keepaliveTime is asked for a sign of life,
// and given up keepaliveTimeout after that. gRPC allows no less than 10 s, and etcd
// closes a connection that asks more often than every 5 s.
const (
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 3 * time.Second
)

// connectTimeout is how long one member may take to answer a new connection. longestPause
// is how long a member that was lost is left alone at most: the Follower soon
// asks again, and should not wait long for it to be found back.
const (
	connectTimeout = 5 * time.Second
	firstPause     = 100 * time.Millisecond
	longestPause   = 3 * time.Second
)

// retries is how often the client library asks again, some 25 ms apart, where that can
// make nothing happen twice: while a leader is being elected, or by another member.
const retries = 10

// Store is a store in etcd. It is a configstore.ReadWriter.
type Store struct {
	config  Config
	scope   configstore.Scope
	client  *clientv3.Client
	session *session
	log     *slog.Logger

	life *configstore.Life

	mu   sync.Mutex
	kept *kept // of the last Watch that ended
}

// kept is what a Watch knew when it ended, for one that goes on from there.
type kept struct {
	at     configstore.Version
	ledger *configstore.Ledger
}

var (
	_ configstore.ReadWriter = (*Store)(nil)
	_ configstore.Historian  = (*Store)(nil)
	_ configstore.ManyGetter = (*Store)(nil)
)

// Open makes a store of a configuration, of which Watch and List read the scope. It reads
// the files of tls and asks no server.
func Open(c Config, scope configstore.Scope, log *slog.Logger) (*Store, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	secure, _ := c.secure(c.Endpoints[0]) // has been checked
	security, err := c.TLS.Client()
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	if secure && security == nil {
		security = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	s := &Store{config: c, scope: scope, log: log, session: newSession(c.Username, c.Password), life: configstore.NewLife()}
	s.client, err = clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints, TLS: security,
		DialKeepAliveTime: keepaliveTime, DialKeepAliveTimeout: keepaliveTimeout,
		MaxCallSendMsgSize: math.MaxInt32, MaxCallRecvMsgSize: math.MaxInt32, // the server knows its limits
		MaxUnaryRetries: retries,
		Logger:          zap.NewNop(), // what it would log comes as an error
		DialOptions: []grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longestPause},
				MinConnectTimeout: connectTimeout,
			}),
			grpc.WithStatsHandler(connections{s.session}),
			grpc.WithChainUnaryInterceptor(s.session.unary),
			grpc.WithChainStreamInterceptor(s.session.stream),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", s.servers(), err)
	}
	return s, nil
}

// Close ends every Watch and every request, and waits for them.
func (s *Store) Close() error {
	if !s.life.Close() {
		return nil
	}
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("store etcd: close the connection to %s: %w", s.servers(), err)
	}
	return nil
}

// servers is how errors name the server. Endpoints hold no password: see Config.secure.
func (s *Store) servers() string { return strings.Join(s.config.Endpoints, ", ") }

// keep remembers what a Watch knew.
func (s *Store) keep(at configstore.Version, ledger *configstore.Ledger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = &kept{at, ledger}
}

// takeKept returns what the last Watch knew at a version, once.
func (s *Store) takeKept(at configstore.Version) *configstore.Ledger {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil || s.kept.at != at {
		return nil
	}
	ledger := s.kept.ledger
	s.kept = nil
	return ledger
}
