package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// EtcdOptions says how a server of etcd is run. The zero value is one member, in the
// clear, with no users, as etcd is by default.
type EtcdOptions struct {
	// TLS of the port for clients: files in PEM; empty for none. With a ClientCA, clients
	// must have a certificate of it.
	Cert, Key, ClientCA string

	// Place is the network that it is in; nil: the one that this process is in.
	Place sandbox.Place

	// Args are more flags, such as "--quota-backend-bytes=2097152".
	Args []string
}

// Etcd is one member of an etcd cluster, in a directory of its own.
type Etcd struct {
	process *sandbox.Process
	dir     string
	name    string
	client  string // host:port
	peer    string // URL
	scheme  string
	options EtcdOptions
}

// StartEtcd starts a cluster of one member, with its data and its log in dir, and waits
// until it serves.
func StartEtcd(ctx context.Context, dir string, o EtcdOptions) (*Etcd, error) {
	members, err := StartEtcdCluster(ctx, dir, 1, o)
	if err != nil {
		return nil, err
	}
	return members[0], nil
}

// StartEtcdCluster starts a cluster of so many members and waits until each serves.
func StartEtcdCluster(ctx context.Context, dir string, size int, o EtcdOptions) ([]*Etcd, error) {
	binary, err := sandbox.Binary("etcd")
	if err != nil {
		return nil, err
	}
	members := make([]*Etcd, size)
	var initial []string
	for i := range members {
		if members[i], err = newEtcd(dir, fmt.Sprintf("etcd-%d", i), o); err != nil {
			return nil, err
		}
		initial = append(initial, members[i].name+"="+members[i].peer)
	}
	for _, m := range members {
		if err := m.launch(binary, strings.Join(initial, ","), o); err != nil {
			return nil, errors.Join(err, KillEtcd(members...))
		}
	}
	for _, m := range members {
		if err := m.process.WaitReady(ctx); err != nil {
			return nil, errors.Join(err, KillEtcd(members...))
		}
	}
	return members, nil
}

// KillEtcd kills the members that run.
func KillEtcd(members ...*Etcd) error {
	var errs []error
	for _, m := range members {
		if m != nil && m.process != nil {
			errs = append(errs, m.process.Kill())
		}
	}
	return errors.Join(errs...)
}

func newEtcd(dir, name string, o EtcdOptions) (*Etcd, error) {
	m := &Etcd{dir: dir, name: name, scheme: "http", options: o}
	if o.Cert != "" {
		m.scheme = "https"
	}
	client, err := sandbox.FreePort()
	if err != nil {
		return nil, err
	}
	peer, err := sandbox.FreePort()
	if err != nil {
		return nil, err
	}
	m.client, m.peer = hostPort(client), "http://"+hostPort(peer)
	return m, nil
}

func hostPort(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (m *Etcd) launch(binary, initial string, o EtcdOptions) error {
	health, err := sandbox.FreePort()
	if err != nil {
		return err
	}
	args := []string{
		"--name=" + m.name, "--data-dir=" + m.Data(),
		"--listen-client-urls=" + m.URL(), "--advertise-client-urls=" + m.URL(),
		"--listen-peer-urls=" + m.peer, "--initial-advertise-peer-urls=" + m.peer,
		"--initial-cluster=" + initial, "--listen-metrics-urls=http://" + hostPort(health),
		"--logger=zap", "--log-level=warn",
	}
	if o.Cert != "" {
		args = append(args, "--cert-file="+o.Cert, "--key-file="+o.Key)
	}
	if o.ClientCA != "" {
		args = append(args, "--client-cert-auth", "--trusted-ca-file="+o.ClientCA)
	}
	m.process, err = sandbox.Start(sandbox.Command{
		Name: m.name, Path: binary, Args: append(args, o.Args...), LogDir: m.dir, Place: o.Place,
		ReadyURL: "http://" + hostPort(health) + "/health",
	})
	return err
}

// Addr is where clients connect to, host:port.
func (m *Etcd) Addr() string { return m.client }

// URL is Addr with its scheme: http or https.
func (m *Etcd) URL() string { return m.scheme + "://" + m.client }

// Data is the directory with the member's data.
func (m *Etcd) Data() string { return filepath.Join(m.dir, m.name+".data") }

// PID is the id of the member's process.
func (m *Etcd) PID() int { return m.process.PID() }

// Kill ends the member with SIGKILL.
func (m *Etcd) Kill() error { return m.process.Kill() }

// Stop asks the member to end, and waits until it has.
func (m *Etcd) Stop(ctx context.Context) error { return m.process.Stop(ctx) }

// Start starts the member again with its data, after a Kill or a Stop. It waits until the
// member serves, which takes a quorum.
func (m *Etcd) Start(ctx context.Context) error { return m.process.Restart(ctx) }

// Elsewhere starts the member, which must be the only one and have ended, with its data at
// another address: for those who write to it while its clients find nobody. Where it was
// it starts again once the one elsewhere has ended.
func (m *Etcd) Elsewhere(ctx context.Context) (*Etcd, error) {
	binary, err := sandbox.Binary("etcd")
	if err != nil {
		return nil, err
	}
	port, err := sandbox.FreePort()
	if err != nil {
		return nil, err
	}
	other := &Etcd{dir: m.dir, name: m.name, scheme: m.scheme, peer: m.peer, client: hostPort(port), options: m.options}
	if err := other.launch(binary, m.name+"="+m.peer, m.options); err != nil {
		return nil, err
	}
	if err := other.process.WaitReady(ctx); err != nil {
		return nil, errors.Join(err, other.Kill())
	}
	return other, nil
}

// Restore ends the member, which must be the only one, and starts it from a backup that
// "etcdctl snapshot save" made, at the same address, as etcd's documentation says to:
// https://etcd.io/docs/v3.6/op-guide/recovery/. More flags of "etcdutl snapshot restore"
// may be given.
func (m *Etcd) Restore(ctx context.Context, backup string, flags ...string) error {
	binary, err := sandbox.Binary("etcdutl")
	if err != nil {
		return err
	}
	if err := m.Kill(); err != nil {
		return err
	}
	if err := os.RemoveAll(m.Data()); err != nil {
		return fmt.Errorf("restore %s: %w", m.name, err)
	}
	args := append([]string{
		"snapshot", "restore", backup, "--data-dir=" + m.Data(), "--name=" + m.name,
		"--initial-cluster=" + m.name + "=" + m.peer, "--initial-advertise-peer-urls=" + m.peer,
	}, flags...)
	if out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("restore %s from %s: %w\n%s", m.name, backup, err, out)
	}
	return m.Start(ctx)
}

// PutBack ends the member and starts it with a copy of its data directory, which was made
// while it was stopped: the other way in which people restore.
func (m *Etcd) PutBack(ctx context.Context, copied string) error {
	if err := m.Kill(); err != nil {
		return err
	}
	if err := os.RemoveAll(m.Data()); err != nil {
		return fmt.Errorf("put back %s: %w", m.name, err)
	}
	if err := os.CopyFS(m.Data(), os.DirFS(copied)); err != nil {
		return fmt.Errorf("put back %s: %w", m.name, err)
	}
	return m.Start(ctx)
}
