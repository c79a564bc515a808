package process

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-mesh/isthmus/identity"
)

// A service that stops hands what it listens with over to the one that is started in its place:
// the same sockets, so that no connection is refused and none is lost that waits to be
// accepted. They meet at a socket that is there only while the first one stops. Its mode keeps
// other users away, and it is in dataDir, where none of them can put another in its place.

// Handover is the name of that socket in dataDir, short enough for a socket's address.
func (d DataDir) Handover() string {
	sum := sha256.Sum256([]byte(d.Cluster + "\x00" + d.Replica))
	return fmt.Sprintf("handover-%x.sock", sum[:8])
}

// atHandover calls a function with a path of that socket which is always short: a socket's address
// has some 100 bytes.
func (d DataDir) atHandover(use func(path string) error) error {
	dir, err := os.Open(d.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return use(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), d.Handover()))
}

// sockets are duplicates of the descriptors of listeners, by what they are for.
type sockets map[string]int

// duplicate takes another descriptor of each listener's socket.
func duplicate(listeners map[string]net.Listener) (sockets, error) {
	all := sockets{}
	for name, l := range listeners {
		raw, err := l.(syscall.Conn).SyscallConn()
		if err != nil {
			return all, err
		}
		controlErr := raw.Control(func(original uintptr) {
			var fd int
			if fd, err = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0); err == nil {
				all[name] = fd
			}
		})
		if err = errors.Join(err, controlErr); err != nil {
			return all, err
		}
	}
	return all, nil
}

func (all sockets) close() {
	for name, fd := range all {
		unix.Close(fd)
		delete(all, name)
	}
}

// listener is the one that a socket was taken over for; nil where none was.
func (all sockets) listener(name string) (net.Listener, error) {
	fd, ok := all[name]
	if !ok {
		return nil, nil
	}
	delete(all, name)
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	return net.FileListener(file)
}

// The words of a successor. Each is answered by one packet, but for the last.
const (
	sendSockets = "sockets"
	releaseData = "release" // of the stores and of dataDir
	nowServing  = "serving"
)

// messageTimeout is how long either of them waits for the next word of the other.
const messageTimeout = 30 * time.Second

// maxPacket bounds the names of all sockets, which are in one packet.
const maxPacket = 64 << 10

// send sends the names and the sockets.
func (all sockets) send(c *net.UnixConn) error {
	names, rights := []string{}, []int{}
	for name, fd := range all {
		names, rights = append(names, name), append(rights, fd)
	}
	text, err := json.Marshal(names)
	if err != nil {
		return err
	}
	_, _, err = c.WriteMsgUnix(text, unix.UnixRights(rights...), nil)
	return err
}

// receive is the other side of send.
func receive(c *net.UnixConn) (sockets, error) {
	text, rights := make([]byte, maxPacket), make([]byte, unix.CmsgSpace(4*maxSockets))
	n, m, _, _, err := c.ReadMsgUnix(text, rights)
	if err != nil {
		return nil, err
	}
	all := sockets{}
	messages, err := unix.ParseSocketControlMessage(rights[:m])
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(errors.New("no sockets came"), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	var names []string
	if err := json.Unmarshal(text[:n], &names); err != nil || len(names) != len(fds) {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, fmt.Errorf("%d names of %d sockets: %w", len(names), len(fds), err)
	}
	for i, fd := range fds {
		all[names[i]] = fd
	}
	return all, nil
}

// maxSockets is how many descriptors Linux passes in one message.
const maxSockets = 253

// sameUser tells whether the process at the other end is of the same user.
func sameUser(c *net.UnixConn) bool {
	uid, err := identity.UserOf(c)
	return err == nil && uid == os.Geteuid()
}
