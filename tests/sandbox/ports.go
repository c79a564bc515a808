package sandbox

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// Ports are taken from below the range that Linux and macOS give to outgoing
// connections, so that none of those takes a port between choice and use.
const (
	firstPort = 20_000
	lastPort  = 32_000
)

// ports remembers what this process has handed out.
var ports = struct {
	sync.Mutex
	taken map[int]bool
	kept  *os.File // see keep; nil until the first port, or where there can be none
}{taken: map[int]bool{}}

// FreePort returns a TCP port of 127.0.0.1 on which nothing listens and that it has
// not returned before, nor another process of this user that still runs: a server may be
// stopped and started again, and have its port back.
func FreePort() (int, error) {
	ports.Lock()
	defer ports.Unlock()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if ports.taken[port] || !keep(port) || !free(port) {
			continue
		}
		ports.taken[port] = true
		return port, nil
	}
	return 0, fmt.Errorf("no free port of 127.0.0.1 from %d to %d in 1000 tries", firstPort, lastPort)
}

// keep locks the byte of a port in a file that all processes of this user share, and tells
// whether no other has: the lock ends with the process. A port that then turns out not to be
// free stays kept. Where there can be no such file, as on a full disk, nothing is kept.
func keep(port int) bool {
	if ports.kept == nil {
		file, err := openPorts(filepath.Join(os.TempDir(), fmt.Sprintf("isthmus-ports-%d", os.Getuid())))
		if err != nil {
			return true
		}
		ports.kept = file // and never closed: that would end all locks
	}
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: int64(port), Len: 1}
	err := syscall.FcntlFlock(ports.kept.Fd(), syscall.F_SETLK, &lock)
	return err != syscall.EAGAIN && err != syscall.EACCES
}

// openPorts opens the file of a path, in a directory where others may write: a file of our own,
// and no link that somebody else has put there.
func openPorts(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.Mode().IsRegular() || stat.Nlink != 1 || int(stat.Uid) != os.Getuid() {
		return nil, errors.Join(fmt.Errorf("%s is no plain file of this user's own", path), file.Close())
	}
	return file, nil
}

// freePorts fills in every port with a free one.
func freePorts(into ...*int) error {
	for _, p := range into {
		port, err := FreePort()
		if err != nil {
			return err
		}
		*p = port
	}
	return nil
}

// free tells whether a port can be had for TCP and UDP alike.
func free(port int) bool {
	lis, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	defer lis.Close()
	conn, err := net.ListenPacket("udp", loopback(port))
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
