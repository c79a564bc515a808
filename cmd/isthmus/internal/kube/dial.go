package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/apimachinery/pkg/util/httpstream"
	httpspdy "k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/client-go/transport/spdy"
	k8swebsocket "k8s.io/client-go/transport/websocket"
)

// The protocol of Kubernetes' port-forward: SPDY in the upgraded connection, or SPDY in the
// messages of a websocket. client-go's portforward package would link the types of every
// Kubernetes object for it.
const (
	protocol       = "portforward.k8s.io"
	tunnelled      = "SPDY/3.1+" + protocol
	pingEvery      = 10 * time.Second // so that no load balancer ends an idle connection
	longestMessage = 4 << 10
	messageMayTake = time.Second
)

// Dial connects to a port at the loopback address of a pod, by way of the API server and the
// pod's kubelet: what listens at 127.0.0.1 there is reached, too. The context bounds the
// connecting alone. The connection knows no deadlines.
func (c *Cluster) Dial(ctx context.Context, namespace, pod string, port int) (net.Conn, error) {
	what := fmt.Sprintf("port %d of pod %s/%s", port, namespace, pod)
	tunnel, err := c.tunnel(ctx, namespace, pod)
	if err != nil {
		return nil, fmt.Errorf("port-forward to %s: %w", what, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = tunnel.Close() })
	conn, err := openPort(tunnel, port, what)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = tunnel.Close()
		return nil, fmt.Errorf("port-forward to %s: %w", what, err)
	}
	return conn, nil
}

// tunnel opens a connection to a pod's kubelet: by a websocket or, where the API server or a proxy
// on the way knows none, by SPDY alone, as kubectl does.
func (c *Cluster) tunnel(ctx context.Context, namespace, pod string) (httpstream.Connection, error) {
	target := c.URL("/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods/" + url.PathEscape(pod) + "/portforward")
	tunnel, err := c.tunnelByWebsocket(ctx, target)
	if httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err) {
		return c.tunnelBySPDY(ctx, target)
	}
	return tunnel, err
}

func (c *Cluster) tunnelByWebsocket(ctx context.Context, target string) (httpstream.Connection, error) {
	transport, holder, err := k8swebsocket.RoundTripperFor(c.config)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	conn, err := k8swebsocket.Negotiate(transport, holder, request, tunnelled)
	if err != nil {
		return nil, err
	}
	return httpspdy.NewClientConnectionWithPings(&messages{Conn: conn}, pingEvery)
}

func (c *Cluster) tunnelBySPDY(ctx context.Context, target string) (httpstream.Connection, error) {
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, nil)
	if err != nil {
		return nil, err
	}
	tunnel, got, err := spdy.Negotiate(upgrader, &http.Client{Transport: transport}, request, protocol)
	if err == nil && got != protocol {
		err = errors.Join(fmt.Errorf("the API server speaks %q, and not %s", got, protocol), tunnel.Close())
	}
	return tunnel, err
}

// messages is the stream of bytes in the messages of a websocket.
type messages struct {
	*websocket.Conn
	reading io.Reader // the message that is being read; nil: the next one is to come
}

// Read is that of net.Conn.
func (m *messages) Read(p []byte) (int, error) {
	for {
		if m.reading == nil {
			var err error
			if _, m.reading, err = m.NextReader(); websocket.IsCloseError(err, websocket.CloseNormalClosure) {
				return 0, io.EOF
			} else if err != nil {
				return 0, err
			}
		}
		n, err := m.reading.Read(p)
		if n > 0 || err == nil {
			return n, nil
		}
		m.reading = nil
		if !errors.Is(err, io.EOF) {
			return 0, err
		}
	}
}

// Write is that of net.Conn: one message.
func (m *messages) Write(p []byte) (int, error) {
	if err := m.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// SetDeadline is that of net.Conn.
func (m *messages) SetDeadline(at time.Time) error {
	return errors.Join(m.SetReadDeadline(at), m.SetWriteDeadline(at))
}

// port is a connection to a port of a pod: a stream with its bytes, and one on which the kubelet
// says what went wrong.
type port struct {
	httpstream.Stream
	tunnel httpstream.Connection
	name   string
	said   chan struct{} // closed when the kubelet has nothing to say any more
	failed atomic.Pointer[string]
}

func openPort(tunnel httpstream.Connection, number int, name string) (*port, error) {
	headers := http.Header{}
	headers.Set("port", strconv.Itoa(number))
	headers.Set("requestID", "0")
	headers.Set("streamType", "error")
	failures, err := tunnel.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	_ = failures.Close() // nothing is written there
	headers.Set("streamType", "data")
	data, err := tunnel.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	p := &port{Stream: data, tunnel: tunnel, name: name, said: make(chan struct{})}
	go func() { // ends with the tunnel
		defer close(p.said)
		text, _ := io.ReadAll(io.LimitReader(failures, longestMessage))
		if why := string(bytes.TrimSpace(text)); why != "" {
			p.failed.Store(&why)
		}
	}()
	return p, nil
}

// Read is that of net.Conn. Where the stream ends, the error is what the kubelet says of it.
func (p *port) Read(b []byte) (int, error) {
	n, err := p.Stream.Read(b)
	if err == nil || n > 0 {
		return n, nil
	}
	select {
	case <-p.said:
	case <-time.After(messageMayTake):
	}
	if why := p.failed.Load(); why != nil {
		return 0, fmt.Errorf("port-forward to %s: %s", p.name, *why)
	}
	return 0, err
}

// Close ends the connection, and the tunnel with it.
func (p *port) Close() error {
	_ = p.Reset() // lets go of what was not sent
	return p.tunnel.Close()
}

// LocalAddr is that of net.Conn.
func (p *port) LocalAddr() net.Addr { return address("port-forward") }

// RemoteAddr names the port.
func (p *port) RemoteAddr() net.Addr { return address(p.name) }

// SetDeadline is that of net.Conn; there are none.
func (p *port) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline is that of net.Conn; there are none.
func (p *port) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline is that of net.Conn; there are none.
func (p *port) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

type address string

// Network is that of net.Addr.
func (a address) Network() string { return "port-forward" }

// String is that of net.Addr.
func (a address) String() string { return string(a) }
