package servers

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// PostgresOptions says how a PostgreSQL is run.
type PostgresOptions struct {
	// Password is that of the superuser, "postgres". Empty: "postgres".
	Password string

	// Cert and Key are the server's certificate, files in PEM: it then takes clients by
	// TLS, too.
	Cert, Key string

	// Config is more lines of postgresql.conf. They come last, so they win.
	Config []string

	// Place is the network that it is in; nil: the one that this process is in.
	Place sandbox.Place
}

// Postgres is a PostgreSQL in a directory of its own.
type Postgres struct {
	process  *sandbox.Process
	data     string
	address  string
	password string
	place    sandbox.Place
}

// StartPostgres makes a database cluster in dir, starts a PostgreSQL on it with its log
// there, and waits until it serves. Everybody has to give a password. Root starts it as
// another user, since PostgreSQL does not run as root, and opens dir and the directories
// above it, as far as they are temporary, to being passed through.
func StartPostgres(ctx context.Context, dir string, o PostgresOptions) (*Postgres, error) {
	server, err := postgresBinary("postgres")
	if err != nil {
		return nil, err
	}
	initdb, err := postgresBinary("initdb")
	if err != nil {
		return nil, err
	}
	port, err := sandbox.FreePort()
	if err != nil {
		return nil, err
	}
	if o.Password == "" {
		o.Password = "postgres"
	}
	p := &Postgres{data: filepath.Join(dir, "postgres"), address: hostPort(port), password: o.Password, place: o.Place}
	owner, err := ownerOf(p.data)
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	if err := p.initialize(ctx, initdb, port, owner, o); err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	p.process, err = sandbox.Start(sandbox.Command{
		Name: "postgres", Path: server, Args: []string{"-D", p.data}, LogDir: dir, UID: owner.Uid, GID: owner.Gid, Place: o.Place,
	})
	if err != nil {
		return nil, err
	}
	return p, p.waitReady(ctx)
}

// postgresBinary finds a program of PostgreSQL, without links on the way: the user that
// it runs as may not pass through root's directories.
func postgresBinary(name string) (string, error) {
	path, err := sandbox.Binary(name)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// ownerOf makes a directory for data and says who owns it: somebody else, for root.
func ownerOf(data string) (syscall.Credential, error) {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return syscall.Credential{}, err
	}
	if os.Geteuid() != 0 {
		return syscall.Credential{}, nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		if account, err = user.Lookup("nobody"); err != nil {
			return syscall.Credential{}, err
		}
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return syscall.Credential{}, err
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return syscall.Credential{}, err
	}
	if err := os.Chown(data, int(uid), int(gid)); err != nil {
		return syscall.Credential{}, err
	}
	temporary := filepath.Clean(os.TempDir())
	for dir := filepath.Dir(data); strings.HasPrefix(dir, temporary+string(filepath.Separator)); dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return syscall.Credential{}, err
		}
		if err := os.Chmod(dir, info.Mode().Perm()|0o011); err != nil {
			return syscall.Credential{}, err
		}
	}
	return syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// initialize makes the database cluster and its configuration.
func (p *Postgres) initialize(ctx context.Context, initdb string, port int, owner syscall.Credential, o PostgresOptions) error {
	secret := filepath.Join(filepath.Dir(p.data), "superuser")
	if err := p.give(secret, []byte(o.Password+"\n"), owner); err != nil {
		return err
	}
	defer os.Remove(secret)
	cmd := exec.CommandContext(ctx, initdb, "-D", p.data, "-U", "postgres", "-A", "scram-sha-256", "--pwfile="+secret, "--no-sync", "--locale=C.UTF-8", "-E", "UTF8")
	if owner.Uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &owner}
	}
	cmd.Dir = p.data
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	lines := []string{
		"listen_addresses = '127.0.0.1'", fmt.Sprintf("port = %d", port), "unix_socket_directories = ''",
		"shared_buffers = '16MB'", "max_connections = 50", "logging_collector = off",
	}
	if o.Cert != "" {
		for from, to := range map[string]string{o.Cert: "server.crt", o.Key: "server.key"} {
			text, err := os.ReadFile(from)
			if err != nil {
				return err
			}
			if err := p.give(filepath.Join(p.data, to), text, owner); err != nil {
				return err
			}
		}
		lines = append(lines, "ssl = on", "ssl_cert_file = 'server.crt'", "ssl_key_file = 'server.key'")
	}
	text := strings.Join(append(lines, o.Config...), "\n") + "\n"
	return p.give(filepath.Join(p.data, "postgresql.conf"), []byte(text), owner)
}

// give writes a file that only the server's user can read.
func (p *Postgres) give(path string, text []byte, owner syscall.Credential) error {
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	if owner.Uid == 0 {
		return nil
	}
	return os.Chown(path, int(owner.Uid), int(owner.Gid))
}

// Addr is where clients connect to, host:port.
func (p *Postgres) Addr() string { return p.address }

// Data is the directory with the server's data.
func (p *Postgres) Data() string { return p.data }

// URL is a connection string for the superuser and a database, without TLS.
func (p *Postgres) URL(database string) string {
	return fmt.Sprintf("postgres://postgres:%s@%s/%s?sslmode=disable", p.password, p.address, database)
}

// PID is the id of the server's first process.
func (p *Postgres) PID() int { return p.process.PID() }

// Kill ends the server with SIGKILL. Its other processes see that and end, which
// takes them a moment.
func (p *Postgres) Kill() error { return p.process.Kill() }

// Stop asks the server to end at once, without a farewell to who is connected, and waits
// until it has. It rolls back what is not committed.
func (p *Postgres) Stop(ctx context.Context) error {
	if err := p.process.Signal(syscall.SIGINT); err != nil { // "fast shutdown"
		return err
	}
	return p.process.Stop(ctx)
}

// Start starts the server again with its data, after a Kill or a Stop, and waits until it
// serves. After a Kill it can take a few tries, until all of the old server is gone.
func (p *Postgres) Start(ctx context.Context) error {
	for {
		if err := p.process.Start(); err != nil {
			return err
		}
		err := p.waitReady(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

func (p *Postgres) waitReady(ctx context.Context) error {
	return awaitReady(ctx, p.process, p.answers)
}

// answers asks for a session in the clear: a server that is still starting up says so in
// place of asking for a password, or of refusing.
func (p *Postgres) answers() bool {
	conn, err := dial(p.place, p.address)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(answerLimit))
	body := binary.BigEndian.AppendUint32(nil, 196608) // protocol 3.0
	body = append(body, "user\x00postgres\x00\x00"...)
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+4)), body...)); err != nil {
		return false
	}
	head := make([]byte, 5)
	if _, err := io.ReadFull(conn, head); err != nil {
		return false
	}
	if head[0] == 'R' { // asks for a password
		return true
	}
	text, _ := io.ReadAll(io.LimitReader(conn, 4096))
	return head[0] == 'E' && !strings.Contains(string(text), "57P03") // cannot_connect_now; any other refusal is an answer
}
