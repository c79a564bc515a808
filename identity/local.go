package identity

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
)

// LocalCredentials are for a gRPC server at a unix socket, whose file mode says who may connect.
// Nothing is encrypted. [FromLocal] finds the caller.
func LocalCredentials() credentials.TransportCredentials {
	return localCredentials{insecure.NewCredentials()}
}

type localCredentials struct {
	credentials.TransportCredentials
}

// ServerHandshake asks the kernel who connects.
func (c localCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	info := localInfo{user: "a user of this machine"}
	info.SecurityLevel = credentials.NoSecurity
	if uid, err := UserOf(conn); err == nil {
		info.user = fmt.Sprintf("user %d of this machine", uid)
	}
	return conn, info, nil
}

// Clone is that of [credentials.TransportCredentials].
func (c localCredentials) Clone() credentials.TransportCredentials { return c }

// localInfo describes a connection to a unix socket.
type localInfo struct {
	credentials.CommonAuthInfo
	user string
}

// AuthType is that of [credentials.AuthInfo].
func (localInfo) AuthType() string { return "local" }

// FromLocal returns the caller at a server with [LocalCredentials], in words for a log.
func FromLocal(ctx context.Context) (user string, ok bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", false
	}
	info, ok := p.AuthInfo.(localInfo)
	return info.user, ok
}

// UserOf returns the user at the other end of a unix socket, as the kernel knows it.
func UserOf(conn net.Conn) (uid int, err error) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return 0, fmt.Errorf("%T is no socket", conn)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	controlErr := raw.Control(func(fd uintptr) { uid, err = userAt(int(fd)) })
	return uid, errors.Join(controlErr, err)
}
