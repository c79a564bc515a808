package sandbox

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
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
}{taken: map[int]bool{}}

// FreePort returns a TCP port of 127.0.0.1 on which nothing listens and that it has
// not returned before.
func FreePort() (int, error) {
	ports.Lock()
	defer ports.Unlock()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if ports.taken[port] || !free(port) {
			continue
		}
		ports.taken[port] = true
		return port, nil
	}
	return 0, fmt.Errorf("no free port of 127.0.0.1 from %d to %d in 1000 tries", firstPort, lastPort)
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
