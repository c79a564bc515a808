package forward

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// zoneFile is what the servers that users have serve in these tests.
func zoneFile() string {
	var b strings.Builder
	b.WriteString("$ORIGIN example.test.\n@ 300 SOA ns host 1 3600 600 86400 60\n@ 300 NS ns\nns 300 A 127.0.0.1\n")
	b.WriteString("www 30 A 192.0.2.1\nwww 30 AAAA 2001:db8::1\nalias 30 CNAME www\n")
	for i := range 200 {
		fmt.Fprintf(&b, "big 30 TXT \"%d %s\"\n", i, strings.Repeat("x", 200))
	}
	return b.String()
}

// program runs a server whose configuration is a text with %d for the port and %s for its
// directory, and waits until it answers.
func program(t *testing.T, name, config string, args ...string) netip.AddrPort {
	t.Helper()
	path := programstest.Path(t, name)
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := strings.NewReplacer("PORT", fmt.Sprint(port), "DIR", dir)
	for file, text := range map[string]string{"example.test.zone": zoneFile(), "conf": replace.Replace(config)} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := range args {
		args[i] = replace.Replace(args[i])
	}
	p, err := sandbox.Start(sandbox.Command{Name: name, Path: path, Args: args, LogDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Kill() })
	addr := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(port))
	eventually(t, name+" answers: "+p.Tail(20), func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		var c dns.Client
		m, _, err := c.ExchangeContext(ctx, new(dns.Msg).SetQuestion("example.test.", dns.TypeSOA), addr.String())
		return err == nil && len(m.Answer) > 0
	})
	return addr
}

// TestServersThatUsersHaveAsUpstreams asks each directly and through a forwarder.
func TestServersThatUsersHaveAsUpstreams(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) netip.AddrPort{
		"unbound": func(t *testing.T) netip.AddrPort {
			return program(t, "unbound", `server:
  interface: 127.0.0.1@PORT
  chroot: ""
  username: ""
  directory: "DIR"
  pidfile: "DIR/pid"
  use-syslog: no
  num-threads: 1
  access-control: 127.0.0.0/8 allow
  local-zone: "test." nodefault
auth-zone:
  name: "example.test"
  zonefile: "DIR/example.test.zone"
  for-downstream: yes
  for-upstream: no
remote-control:
  control-enable: no
`, "-d", "-p", "-c", "DIR/conf")
		},
		"knot": func(t *testing.T) netip.AddrPort {
			return program(t, "knotd", `server:
  listen: 127.0.0.1@PORT
  rundir: "DIR"
  udp-workers: 1
  tcp-workers: 1
  background-workers: 1
database:
  storage: "DIR"
zone:
- domain: example.test
  storage: "DIR"
  file: "example.test.zone"
  zonefile-load: whole
`, "-c", "DIR/conf")
		},
		"coredns": func(t *testing.T) netip.AddrPort {
			return program(t, "coredns", `example.test:PORT {
  bind 127.0.0.1
  file DIR/example.test.zone
}
`, "-conf", "DIR/conf")
		},
	} {
		t.Run(name, func(t *testing.T) {
			upstream := start(t)
			f := forwarder(t, Config{Timeout: soon, Patience: soon}, upstream)
			run(t, f)
			for _, c := range []struct {
				name  string
				kind  uint16
				rcode int
				want  int
			}{
				{"www.example.test.", dns.TypeA, 0, 1},
				{"WWW.example.TEST.", dns.TypeA, 0, 1},
				{"www.example.test.", dns.TypeAAAA, 0, 1},
				{"www.example.test.", dns.TypeMX, 0, 0},
				{"alias.example.test.", dns.TypeA, 0, 2},
				{"nothing.example.test.", dns.TypeA, dns.RcodeNameError, 0},
				{"big.example.test.", dns.TypeTXT, 0, 200},
			} {
				for _, again := range []string{"asked", "kept"} {
					m := ask(t, f, query(c.name, c.kind))
					if m.Rcode != c.rcode || len(m.Answer) != c.want || len(m.Answer) == 0 && len(m.Ns) == 0 {
						t.Errorf("%s %s, %s: got %s", c.name, dns.TypeToString[c.kind], again, m)
					}
				}
			}
			if c := f.Counters(); c.Misses != 6 || c.Hits != 8 {
				t.Errorf("counted %+v", c)
			}
			eventually(t, "it is up", func() bool { s := f.Status()[0]; return s.Up && s.Err == nil })
		})
	}
}

// TestALoopThroughAResolver has an Unbound that forwards all to us, as our upstream.
func TestALoopThroughAResolver(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	us := netip.MustParseAddrPort(conn.LocalAddr().String())
	upstream := program(t, "unbound", fmt.Sprintf(`server:
  interface: 127.0.0.1@PORT
  chroot: ""
  username: ""
  directory: "DIR"
  pidfile: "DIR/pid"
  use-syslog: no
  num-threads: 1
  do-not-query-localhost: no
  local-zone: "example.test" static
  local-data: "example.test SOA ns host 1 2 3 4 5"
remote-control:
  control-enable: no
forward-zone:
  name: "."
  forward-addr: 127.0.0.1@%d
`, us.Port()), "-d", "-p", "-c", "DIR/conf")
	f := forwarder(t, Config{Timeout: 4 * time.Second, Patience: time.Second}, upstream)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			packet := append([]byte(nil), buffer[:n]...)
			go func() { conn.WriteTo(f.Forward(context.Background(), packet, nil), from) }()
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	run(t, f)
	m := ask(t, f, query("round.and.round.example.net.", dns.TypeA))
	if m.Rcode != dns.RcodeServerFailure {
		t.Errorf("got %s", m)
	}
	if got := f.queries.Load(); got > 2000 {
		t.Errorf("one query made %d", got)
	}
}
