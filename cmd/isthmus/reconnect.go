package main

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
)

// reconnecting is a connection for longer than a command usually runs. It is made anew once it is lost, since
// the pod behind it may be gone, and before the certificate that it shows has expired.
type reconnecting struct {
	options client.Options

	mu   sync.Mutex
	conn *client.Conn // nil: none
	made time.Time
}

// How long a connection is used, of the 24 hours that a certificate of Sentry's lasts, and how long
// calls under way then have.
const (
	connectionLasts = 6 * time.Hour
	callsEndWithin  = time.Minute
)

// current is the connection to use.
func (l *reconnecting) current(ctx context.Context) (*client.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil && time.Since(l.made) < connectionLasts {
		return l.conn, nil
	}
	conn, err := client.Dial(ctx, l.options)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	if old := l.conn; old != nil {
		time.AfterFunc(callsEndWithin, func() { old.Close() })
	}
	l.conn, l.made = conn, time.Now()
	return conn, nil
}

// lost gives a connection up whose call failed so that it may be lost.
func (l *reconnecting) lost(conn *client.Conn, err error) {
	if code := status.Code(err); code != codes.Unavailable && code != codes.Unauthenticated {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == conn {
		l.conn = nil
		conn.Close()
	}
}

func (l *reconnecting) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.Close()
	}
}

// explain is what to tell of a failed call.
func (l *reconnecting) explain(err error) error { return l.options.Explain(err) }

// Invoke makes a call.
func (l *reconnecting) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	conn, err := l.current(ctx)
	if err == nil {
		err = conn.Invoke(ctx, method, args, reply, opts...)
		l.lost(conn, err)
	}
	return err
}

// NewStream begins a stream.
func (l *reconnecting) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	conn, err := l.current(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := conn.NewStream(ctx, desc, method, opts...)
	l.lost(conn, err)
	return stream, err
}
