package servers

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// RedisOptions says how a Redis is run. The zero value listens in the clear, asks for no
// password, and has every write on disk before it is acknowledged.
type RedisOptions struct {
	// Cert and Key are the server's certificate, files in PEM: it then listens by TLS only.
	Cert, Key string

	// Config is more lines of redis.conf, such as "requirepass secret". They come last, so
	// they win.
	Config []string

	// Place is the network that it is in; nil: the one that this process is in.
	Place sandbox.Place
}

// Redis is a Redis in a directory of its own.
type Redis struct {
	process *sandbox.Process
	dir     string
	address string
	tls     bool
	place   sandbox.Place
}

// StartRedis starts a Redis, with its data and its log in dir, and waits until it serves.
func StartRedis(ctx context.Context, dir string, o RedisOptions) (*Redis, error) {
	binary, err := sandbox.Binary("redis-server")
	if err != nil {
		return nil, err
	}
	port, err := sandbox.FreePort()
	if err != nil {
		return nil, err
	}
	r := &Redis{dir: dir, address: hostPort(port), tls: o.Cert != "", place: o.Place}
	lines := []string{
		"bind 127.0.0.1", "daemonize no", "dir " + dir, `save ""`,
		"appendonly yes", "appendfsync always", "loglevel warning",
	}
	if r.tls {
		lines = append(lines, "port 0", fmt.Sprintf("tls-port %d", port), "tls-cert-file "+o.Cert, "tls-key-file "+o.Key, "tls-auth-clients no")
	} else {
		lines = append(lines, fmt.Sprintf("port %d", port))
	}
	config := filepath.Join(dir, "redis.conf")
	text := strings.Join(append(lines, o.Config...), "\n") + "\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil { // it may hold passwords
		return nil, fmt.Errorf("start Redis: %w", err)
	}
	r.process, err = sandbox.Start(sandbox.Command{Name: "redis", Path: binary, Args: []string{config}, LogDir: dir, Place: o.Place})
	if err != nil {
		return nil, err
	}
	return r, r.waitReady(ctx)
}

// Addr is where clients connect to, host:port.
func (r *Redis) Addr() string { return r.address }

// Data is the directory with the server's data.
func (r *Redis) Data() string { return r.dir }

// PID is the id of the server's process.
func (r *Redis) PID() int { return r.process.PID() }

// Kill ends the server with SIGKILL.
func (r *Redis) Kill() error { return r.process.Kill() }

// Stop asks the server to end, and waits until it has.
func (r *Redis) Stop(ctx context.Context) error { return r.process.Stop(ctx) }

// Start starts the server again with its data, after a Kill or a Stop, and waits until it
// serves.
func (r *Redis) Start(ctx context.Context) error {
	if err := r.process.Start(); err != nil {
		return err
	}
	return r.waitReady(ctx)
}

// waitReady asks until the server answers and has its data loaded.
func (r *Redis) waitReady(ctx context.Context) error {
	return awaitReady(ctx, r.process, r.answers)
}

func (r *Redis) answers() bool {
	conn, err := dial(r.place, r.address)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(answerLimit))
	if r.tls {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // it is only asked whether it is up
	}
	if _, err := fmt.Fprint(conn, "PING\r\n"); err != nil {
		return false
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && (strings.HasPrefix(line, "+PONG") || strings.HasPrefix(line, "-NOAUTH"))
}

// answerLimit is how long one question whether a server is up may take, on a machine that is
// slow and busy.
const answerLimit = 10 * time.Second

// dial connects to a server in its place.
func dial(place sandbox.Place, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
	defer cancel()
	return sandbox.Dial(ctx, place, "tcp", address)
}

// awaitReady waits until ready, or the process or the context ends.
func awaitReady(ctx context.Context, p *sandbox.Process, ready func() bool) error {
	for !ready() {
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended before it was ready; its log ends:\n%s", p.Name(), p.Tail(20))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready (%w); its log ends:\n%s", p.Name(), ctx.Err(), p.Tail(20))
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}
