package dial

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
)

// Two gateways are behind a router, each with an address of its own. The router can silently drop
// the packets to one of them, as a dead link does.
//
//	callers ── router ── gateways 10.201.1.1, 10.201.1.2
const (
	firstGateway  = "10.201.1.1"
	secondGateway = "10.201.1.2"
	netnsEnv      = "ISTHMUS_DIAL_NETNS" // the prefix of the namespaces' names, inside them
)

// inNetwork runs the rest of a test in the network above, in a process of its own in the callers'
// namespace. In the parent process it returns false, after that process has ended.
func inNetwork(t *testing.T) (n network, ok bool) {
	t.Helper()
	if prefix := os.Getenv(netnsEnv); prefix != "" {
		return network{t, prefix}, true
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may make network namespaces; run this as root, as CI does")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Fatal("the command ip is missing; install iproute2")
	}
	n = network{t, fmt.Sprintf("dial%d", os.Getpid())}
	n.build()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ip", "netns", "exec", n.prefix+"c", self, "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "5m")
	cmd.Env = append(os.Environ(), netnsEnv+"="+n.prefix)
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "===") {
			t.Log(strings.TrimRight(line, "\n"))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return n, false
}

// network is the namespaces <prefix>c, r and g: callers, router, gateways.
type network struct {
	t      *testing.T
	prefix string
}

func (n network) build() {
	for _, ns := range []string{"c", "r", "g"} {
		n.ip("netns", "add", n.prefix+ns)
		n.t.Cleanup(func() { n.ip("netns", "del", n.prefix+ns) })
		n.in(ns, "link", "set", "lo", "up")
	}
	for _, l := range [][5]string{{"c", "toc", "10.201.0.2/24", "10.201.0.1/24", "10.201.0.1"}, {"g", "tog", "10.201.2.2/24", "10.201.2.1/24", "10.201.2.1"}} {
		n.in("r", "link", "add", l[1], "type", "veth", "peer", "name", "uplink", "netns", n.prefix+l[0])
		n.in(l[0], "addr", "add", l[2], "dev", "uplink")
		n.in("r", "addr", "add", l[3], "dev", l[1])
		n.in(l[0], "link", "set", "uplink", "up")
		n.in("r", "link", "set", l[1], "up")
		n.in(l[0], "route", "add", "default", "via", l[4])
	}
	n.in("g", "addr", "add", firstGateway+"/32", "dev", "lo")
	n.in("g", "addr", "add", secondGateway+"/32", "dev", "lo")
	n.in("r", "route", "add", "10.201.1.0/24", "via", "10.201.2.2")
	n.run("ip", "netns", "exec", n.prefix+"r", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
}

// drop makes the router drop packets to and from an address, or stops that.
func (n network) drop(address string, dropped bool) {
	do := "del"
	if dropped {
		do = "add"
	}
	n.in("r", "rule", do, "to", address, "blackhole")
	n.in("r", "rule", do, "from", address, "blackhole")
}

func (n network) ip(args ...string) { n.t.Helper(); n.run("ip", args...) }
func (n network) in(ns string, args ...string) {
	n.t.Helper()
	n.run("ip", append([]string{"-n", n.prefix + ns}, args...)...)
}

func (n network) run(name string, args ...string) {
	n.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		n.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// listen listens in the gateways' namespace. A socket stays in the namespace that made it.
func (n network) listen(address string) net.Listener {
	n.t.Helper()
	type made struct {
		net.Listener
		err error
	}
	listening := make(chan made)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		fd, err := unix.Open(filepath.Join("/run/netns", n.prefix+"g"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			unix.Close(fd)
		}
		if err != nil {
			listening <- made{nil, err}
			return
		}
		l, err := net.Listen("tcp", address)
		listening <- made{l, err}
	}()
	l := <-listening
	if l.err != nil {
		n.t.Fatalf("listen on %s in namespace %sg: %v", address, n.prefix, l.err)
	}
	return l.Listener
}

// startGateways starts both gateways, whose apps answer after a while.
func (n network) startGateways(after time.Duration) (first, second *timedServer, conn *grpc.ClientConn) {
	first, second = newTimedServer(after), newTimedServer(after)
	var addresses []string
	for address, p := range map[string]*timedServer{firstGateway: first, secondGateway: second} {
		gw := startGatewayOn(n.t, n.listen(address+":15443"), p.register)
		addresses = append(addresses, gw.Address)
	}
	slices.Sort(addresses)
	return first, second, newEastDialer(n.t, addresses...).dial(n.t)
}

func TestAGatewayThatVanishesSilentlyUnderSteadyCalls(t *testing.T) {
	n, ok := inNetwork(t)
	if !ok {
		return
	}
	first, second, conn := n.startGateways(5 * time.Millisecond)
	calls := startLoad(t, conn, 6)
	reached := func(p *timedServer) {
		t.Helper()
		for before := p.given.Load(); p.given.Load() < before+20; time.Sleep(time.Millisecond) {
			if t.Context().Err() != nil {
				t.Fatal("no call came")
			}
		}
	}
	reached(first)
	reached(second)
	n.drop(firstGateway, true)
	time.Sleep(4 * time.Second)
	lost := first.given.Load()
	n.drop(firstGateway, false)
	dropped := time.Now()
	for first.given.Load() == lost && time.Since(dropped) < time.Minute {
		time.Sleep(time.Millisecond)
	}
	back := time.Since(dropped)
	reached(first)
	calls.stop()
	t.Logf("%d calls, %d failures, longest time without any answer %s, longest call %s; used again %s after it was back",
		calls.calls.Load(), calls.failures.Load(), calls.gap.Round(time.Millisecond), calls.longest.Round(time.Millisecond), back.Round(time.Millisecond))
	if calls.longest > callLimit {
		t.Errorf("a call took %s", calls.longest)
	}
}

// A lone call waits for its app when the link fails. Nothing is sent, so TCP would never notice.
func TestALoneCallThroughAGatewayThatVanishesSilently(t *testing.T) {
	n, ok := inNetwork(t)
	if !ok {
		return
	}
	first, second, conn := n.startGateways(100 * time.Millisecond)
	for first.given.Load() == 0 || second.given.Load() == 0 {
		if err := invoke(t.Context(), conn, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	var longest time.Duration
	for _, address := range []string{firstGateway, secondGateway} {
		p := map[string]*timedServer{firstGateway: first, secondGateway: second}[address]
		for given := p.given.Load(); ; {
			began := time.Now()
			ended := startInvoke(t, conn)
			time.Sleep(20 * time.Millisecond)
			hit := p.given.Load() > given
			if hit {
				n.drop(address, true)
			}
			if err := <-ended; err != nil {
				t.Fatalf("call: %v after %s", err, time.Since(began))
			}
			if hit {
				longest = max(longest, time.Since(began))
				n.drop(address, false)
				break
			}
		}
		for given := p.given.Load(); p.given.Load() == given; { // until it is reached again
			if err := invoke(t.Context(), conn, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("a call of 100 ms, alone when the link went, took %s at most", longest.Round(time.Millisecond))
	if longest > callLimit {
		t.Errorf("a call of 100 ms took %s", longest)
	}
}

// A slow app must not look like a lost gateway, though both are silent.
func TestASlowAppIsNoGatewayThatVanished(t *testing.T) {
	n, ok := inNetwork(t)
	if !ok {
		return
	}
	first, second, conn := n.startGateways(3 * time.Second)
	var callers sync.WaitGroup
	for range 6 {
		callers.Go(func() {
			if err := invoke(t.Context(), conn, time.Minute); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if got := first.given.Load() + second.given.Load(); got != 6 {
		t.Errorf("6 calls ran %d times", got)
	}
}
