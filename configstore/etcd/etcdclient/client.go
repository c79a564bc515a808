// Package etcdclient is the connection to etcd, version 3, of all that is kept there: the
// config store and the instances that several replicas share. It has their common
// settings, proves who we are, and says of an error what an operator can do.
package etcdclient

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// A connection on which nothing has come for KeepaliveTime is asked for a sign of life,
// and given up KeepaliveTimeout after that. gRPC allows no less than 10 s, and etcd
// closes a connection that asks more often than every 5 s.
const (
	KeepaliveTime    = 10 * time.Second
	KeepaliveTimeout = 3 * time.Second
)

// connectTimeout is how long one member may take to answer a new connection. longestPause
// is how long a member that was lost is left alone at most: whoever lost it soon asks
// again, and should not wait long for it to be found back.
const (
	connectTimeout = 5 * time.Second
	firstPause     = 100 * time.Millisecond
	longestPause   = 3 * time.Second
)

// retries is how often the client library asks again, some 25 ms apart, where that can
// make nothing happen twice: while a leader is being elected, or by another member.
const retries = 10

// Client is etcd's client with its configuration. Its own Close closes it.
type Client struct {
	*clientv3.Client
	Config Config // with its defaults

	session *session
}

// New makes a client of a configuration. It reads the files of tls and asks no server.
func New(c Config) (*Client, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	c = c.WithDefaults()
	secure, _ := c.secure(c.Endpoints[0]) // has been checked
	client, err := c.TLS.Client()
	if err != nil {
		return nil, strict.Below("tls", err)
	}
	security := client.Config()
	if secure && security == nil {
		security = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	made := &Client{Config: c, session: newSession(c.Username, c.Password)}
	options := []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longestPause},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithStatsHandler(connections{made.session}),
		grpc.WithChainUnaryInterceptor(made.session.unary),
		grpc.WithChainStreamInterceptor(made.session.stream),
	}
	if client != nil {
		options = append(options, grpc.WithTransportCredentials(followed{credentials.NewTLS(security), client}))
	}
	made.Client, err = clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints, TLS: security,
		DialKeepAliveTime: KeepaliveTime, DialKeepAliveTimeout: KeepaliveTimeout,
		MaxCallSendMsgSize: math.MaxInt32, MaxCallRecvMsgSize: math.MaxInt32, // the server knows its limits
		MaxUnaryRetries: retries,
		Logger:          zap.NewNop(), // what it would log comes as an error
		DialOptions:     options,
	})
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", made.Servers(), err)
	}
	return made, nil
}

// followed are the credentials of the files as they are at each handshake.
type followed struct {
	credentials.TransportCredentials
	client *settings.Client
}

// ClientHandshake is that of credentials.TransportCredentials.
func (f followed) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(f.client.Config()).ClientHandshake(ctx, authority, conn)
}

// Clone is that of credentials.TransportCredentials.
func (f followed) Clone() credentials.TransportCredentials {
	return followed{f.TransportCredentials.Clone(), f.client}
}

// Servers is how errors name the server. Endpoints hold no password: see Config.secure.
func (c *Client) Servers() string { return strings.Join(c.Config.Endpoints, ", ") }

// Retry has members that were lost be tried again with the next request, instead of after a pause
// that has become longer the longer they were away. It is for callers that make pauses of their
// own.
func (c *Client) Retry() { c.ActiveConnection().ResetConnectBackoff() }

// Forget forgets the proof of who we are, so that the next request gets another. It is
// for the end of a stream, of which nobody can tell whether the server took it.
func (c *Client) Forget() { c.session.dropAny() }
