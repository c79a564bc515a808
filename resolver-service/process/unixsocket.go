package process

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// unixListener listens at a path that it did not bind.
type unixListener struct {
	*net.UnixListener
	at     *net.UnixAddr
	remove func() error
	left   atomic.Bool
}

// listenUnix makes a socket with a mode. The umask is the whole process's, and a socket that
// is first made and then changed has the wrong mode for a moment. So the socket is made in a
// directory that only this user can enter, gets its mode there, and is moved to its place.
func listenUnix(path string, mode os.FileMode) (net.Listener, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("%s is there and is no socket that was left behind", path)
	}
	l, err := bindUnix("unix", path, mode)
	if err != nil {
		return nil, err
	}
	return unixAt(l, path), nil
}

// bindUnix is listenUnix that replaces what is at the path, and leaves the socket there.
func bindUnix(network, path string, mode os.FileMode) (*net.UnixListener, error) {
	dir, err := privateDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer os.Remove(dir)
	made := filepath.Join(dir, "s")
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: made, Net: network})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it would remove what is at the old path
	if err = os.Chmod(made, mode); err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		l.Close()
		os.Remove(made)
		return nil, err
	}
	return l, nil
}

// unixAt has a listener remove the socket at a path when it is closed.
func unixAt(l *net.UnixListener, path string) *unixListener {
	u := &unixListener{UnixListener: l, at: &net.UnixAddr{Name: path, Net: "unix"}}
	u.remove = sync.OnceValue(func() error {
		if u.left.Load() {
			return nil
		}
		return os.Remove(path)
	})
	return u
}

// unix are the listeners at unix sockets.
func (s *Listeners) unix() iter.Seq[*unixListener] {
	return func(yield func(*unixListener) bool) {
		for _, l := range s.tcp {
			if u, ok := l.(*unixListener); ok && !yield(u) {
				return
			}
		}
	}
}

// leave has the socket stay where it is when the listener is closed: another process listens
// there. keep takes that back.
func (l *unixListener) leave() { l.left.Store(true) }
func (l *unixListener) keep()  { l.left.Store(false) }

// privateDir makes a directory with a short name: a socket's path has some 100 bytes.
func privateDir(in string) (string, error) {
	for tries := 0; ; tries++ {
		dir := filepath.Join(in, fmt.Sprintf(".%04x", rand.N(1<<16)))
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			return dir, os.Chmod(dir, 0o700) // which a umask may have taken from
		}
		if !os.IsExist(err) || tries == 100 {
			return "", err
		}
	}
}

// Addr is where clients connect.
func (l *unixListener) Addr() net.Addr { return l.at }

// Close closes it and removes the socket.
func (l *unixListener) Close() error {
	_ = l.remove() // somebody has removed it before
	return l.UnixListener.Close()
}
