package client

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/atomicfile"
)

// NoSocket as the value of ISTHMUS_SOCKET keeps a command from looking for a socket by itself.
const NoSocket = "off"

// sentryPatience is how long Sentry has where the operator socket can stand in for it.
const sentryPatience = 3 * time.Second

// sentryAlone is how long it has where nothing can.
const sentryAlone = 5 * time.Second

// unixSockets is where Linux lists the unix sockets of this machine; other systems have no such list.
const unixSockets = "/proc/net/unix"

// madeSocket matches a line of it about a socket that a service of Isthmus has made, with the directory
// that it then moved the socket to; the list keeps the name before. 00010000 says that it takes
// connections.
var madeSocket = regexp.MustCompile(`(?m)^\S+ \S+ \S+ 00010000 \S+ \S+ +\d+ (/.*)/\.[0-9a-f]{4}/s$`)

// LocalSocket is the operator socket of the service on this machine, or of the one of a cluster. It
// is empty where there is none that this user may trust, and an error where there are several.
func LocalSocket(cluster string) (string, error) {
	if os.Getenv("ISTHMUS_SOCKET") == NoSocket {
		return "", nil
	}
	list, err := os.ReadFile(unixSockets)
	if err != nil {
		return "", nil
	}
	found := socketsIn(string(list), cluster)
	found = slices.DeleteFunc(found, func(path string) bool { return !trusted(path, os.Geteuid()) })
	if len(found) > 1 {
		return "", fmt.Errorf("%w: several services run on this machine; name one by --socket: %s", ErrUse, strings.Join(found, ", "))
	}
	return strings.Join(found, ""), nil
}

// socketsIn are the operator sockets of the services in a list of unixSockets: of a cluster, or of any
// if it is empty. Those without a name may be of any, and count where none has the cluster's.
func socketsIn(list, cluster string) []string {
	var named, nameless []string
	for _, m := range madeSocket.FindAllStringSubmatch(list, -1) {
		entries, _ := os.ReadDir(m[1]) // of a directory that is closed to this user, there are none
		for _, e := range entries {
			of, ok := strings.CutPrefix(e.Name(), "operator")
			of, socket := strings.CutSuffix(of, ".sock")
			path := filepath.Join(m[1], e.Name())
			switch {
			case !ok || !socket:
			case of == "" && cluster != "":
				nameless = append(nameless, path)
			case cluster == "" || of == "-"+cluster || strings.HasPrefix(of, "-"+cluster+"-"): // a replica's has its name, too
				named = append(named, path)
			}
		}
	}
	found := named
	if len(found) == 0 {
		found = nameless
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// trusted tells whether no other user can have put a socket there for this one to speak to: it is
// this user's own or, for root, in a directory that root alone could have given to its owner.
func trusted(path string, user int) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket || atomicfile.CheckOwner(info, atomicfile.AnyUser, 0o077) != nil {
		return false
	}
	if atomicfile.CheckOwner(info, user, 0) == nil {
		return true
	}
	if user != 0 {
		return false
	}
	for dir := filepath.Dir(filepath.Dir(path)); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || atomicfile.CheckOwner(info, 0, 0o022) != nil {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// inPlaceOfSentry is the socket to ask by when Sentry gives no certificate: where the service is on
// this machine.
func (o Options) inPlaceOfSentry() string {
	host, _, err := net.SplitHostPort(o.Server)
	here := strings.HasPrefix(o.Server, "unix:") || err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
	if o.Sentry == "" || !here {
		return ""
	}
	socket, _ := LocalSocket(o.Cluster) // of several, none stands in
	return socket
}

// keep is where certificates of Sentry's are kept; empty for nowhere.
func keep() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "isthmus")
}
