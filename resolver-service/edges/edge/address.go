package edge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// CheckAddress refuses a text that is not host:port, and names one such as another. Of a port alone
// it names that port.
func CheckAddress(doc *strict.Document, path, address, such string) {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		if port, err := strconv.ParseUint(address, 10, 16); err == nil {
			host, _, _ := net.SplitHostPort(such)
			such = net.JoinHostPort(host, strconv.FormatUint(port, 10))
		}
		doc.Refuse(path, fmt.Sprintf("%q is no address", address), "write host:port, such as "+such)
	}
}

// UnixPath is the path in "unix:///path".
func UnixPath(address string) (path string, ok bool) {
	return strings.CutPrefix(address, "unix://")
}

// OnLoopback tells whether only this machine reaches an address, host:port.
func OnLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// ListenError says which listener could not be opened, and why. Advice is what to do; where
// it is empty, the general advice.
func ListenError(name, address string, err error, advice string) error {
	if advice == "" {
		advice = listenAdvice(err)
	}
	return fmt.Errorf("listen.%s: %s: %w; %s", name, address, plain(err), advice)
}

// plain leaves out what the message says already.
func plain(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		var sys *os.SyscallError
		if errors.As(op.Err, &sys) {
			return sys.Err
		}
		return op.Err
	}
	return err
}

func listenAdvice(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "stop what listens there, or write another address in isthmus.yaml"
	case errors.Is(err, syscall.EACCES):
		return "this user may not listen there; write a port above 1023, or a directory that it can write"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this machine has no such address; write one that it has, or 0.0.0.0 for all of them"
	default:
		return "write another address in isthmus.yaml"
	}
}
