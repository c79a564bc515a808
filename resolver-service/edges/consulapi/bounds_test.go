package consulapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

func TestATokenIsTakenFromThreePlaces(t *testing.T) {
	both(t, func(t *testing.T, a *agent) {
		token, stranger := a.tokens["checkout"], a.tokens["stranger"]
		for name, c := range map[string]struct {
			query  string
			header http.Header
			code   int
		}{
			"header":        {"", http.Header{"X-Consul-Token": {token}}, 200},
			"bearer":        {"", http.Header{"Authorization": {"Bearer " + token}}, 200},
			"bearer, lower": {"", http.Header{"Authorization": {"bearer  " + token}}, 200},
			"query":         {"?token=" + token, nil, 200},
			"query first":   {"?token=" + token, http.Header{"X-Consul-Token": {stranger}}, 200},
			"header first":  {"", http.Header{"X-Consul-Token": {token}, "Authorization": {"Bearer " + stranger}}, 200},
			"basic":         {"", http.Header{"Authorization": {"Basic " + token}}, 403},
			"stranger":      {"?token=" + stranger, nil, 403},
			"none":          {"", nil, 403},
		} {
			q, err := http.NewRequestWithContext(t.Context(), "GET", a.url+"/v1/agent/self"+c.query, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.header != nil {
				q.Header = c.header
			}
			if r := a.send(t, q); r.code != c.code {
				t.Errorf("%s: %d, want %d: %s", name, r.code, c.code, r.body)
			}
		}
	})
}

func TestATokenCanBeExchanged(t *testing.T) {
	i := ours(t)
	path := i.server.cfg.Tokens[0].Token.File
	if err := os.WriteFile(path, []byte("new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	next, err := i.server.readTokens()
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := next.holder("new"); !ok || c.app != shop("checkout") {
		t.Error("the new one is not known")
	}
	if _, ok := next.holder("c-token-1"); ok {
		t.Error("the old one is")
	}
	if err := os.WriteFile(path, []byte(i.tokens["orders"]), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := i.server.readTokens(); err == nil || strings.Contains(err.Error(), i.tokens["orders"]) {
		t.Errorf("two apps with one token: %v", err)
	}
}

func TestWhatIsTooMuchIsRefused(t *testing.T) {
	i := ours(t)
	put := func(body string) response { return i.do(t, "checkout", "PUT", "/v1/agent/service/register", body) }
	many := func(n int, format string) string {
		var all []string
		for k := range n {
			all = append(all, fmt.Sprintf(format, k))
		}
		return strings.Join(all, ",")
	}
	for name, c := range map[string]struct {
		body string
		code int
		text string
	}{
		"a huge body":         {`{"Name":"checkout","Tags":["` + strings.Repeat("x", 600<<10) + `"]}`, 413, "too large"},
		"many checks":         {`{"Name":"checkout","Checks":[` + many(65, `{"TTL":"1s","CheckID":"%d"}`) + `]}`, 400, "65 checks"},
		"a long ID":           {`{"Name":"checkout","ID":"` + strings.Repeat("x", 513) + `"}`, 400, "longer than 512"},
		"a name of a host":    {`{"Name":"checkout","Address":"host.example"}`, 400, "IP addresses"},
		"a port of letters":   {`{"Name":"checkout","Meta":{"DAPR_PORT":"x"}}`, 400, "is no port"},
		"a port out of range": {`{"Name":"checkout","Port":65536}`, 400, "65536"},
		"another's address":   {`{"Name":"checkout","Address":"10.0.0.1","Check":{"HTTP":"http://169.254.169.254/","Interval":"1s"}}`, 400, "may ask the service's own address"},
		"a file":              {`{"Name":"checkout","Check":{"HTTP":"file:///etc/passwd","Interval":"1s"}}`, 400, "no URL"},
		"a mesh":              {`{"Name":"checkout","Connect":{"Native":true}}`, 400, "no service mesh"},
		"deep JSON":           {strings.Repeat(`{"Name":`, 20_000), 400, "decode failed"},
	} {
		if r := put(c.body); r.code != c.code || !strings.Contains(r.body, c.text) || len(r.body) > 600 {
			t.Errorf("%s: %d %.300s", name, r.code, r.body)
		}
	}
	for n := range mostServices {
		if r := put(fmt.Sprintf(`{"Name":"checkout","ID":"%d","Address":"10.0.%d.%d","Port":1}`, n, n/250, n%250)); r.code != 200 {
			t.Fatalf("%d: %d %s", n, r.code, r.body)
		}
	}
	if r := put(`{"Name":"checkout","ID":"more"}`); r.code != 429 {
		t.Errorf("one more: %d %s", r.code, r.body)
	}
	if r := i.do(t, "checkout", "GET", "/v1/health/service/checkout?filter="+strings.Repeat("%28", 1_000), ""); r.code != 400 {
		t.Errorf("a deep filter: %d %s", r.code, r.body)
	}
	if n := mostRecords; true {
		for k := range n + 10 {
			i.server.service(i.server.callers[shop("checkout")], fmt.Sprint("s", k), "")
		}
		if got := len(i.server.callers[shop("checkout")].records); got > n {
			t.Errorf("%d questions are remembered", got)
		}
	}
}

func TestOneClientHasSoManyConnections(t *testing.T) {
	i := start(t, "", Settings{MaxConnectionsPerClient: 3}, selection("checkout"))
	address := strings.TrimPrefix(i.url, "http://")
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	ask := func() (string, net.Conn) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(c, "GET /v1/agent/self HTTP/1.1\r\nHost: localhost\r\nX-Consul-Token: c-token-1\r\n\r\n")
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			return err.Error(), c
		}
		return strings.TrimSpace(line), c
	}
	for range 3 {
		if line, _ := ask(); line != "HTTP/1.1 200 OK" {
			t.Fatal(line)
		}
	}
	if line, _ := ask(); line == "HTTP/1.1 200 OK" {
		t.Errorf("a fourth: %s", line)
	}
	open[0].Close()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if line, _ := ask(); line == "HTTP/1.1 200 OK" {
			break
		} else if time.Now().After(end) {
			t.Fatal("none is let in after one has gone")
		}
	}
}

// TestASlowClientHoldsNobodyUp: one sends its request a byte at a time, and one reads nothing.
func TestASlowClientHoldsNobodyUp(t *testing.T) {
	i := ours(t)
	address := strings.TrimPrefix(i.url, "http://")
	for _, text := range []string{"GET /v1/agent/self HT", "PUT /v1/agent/service/register HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", "GET /v1/agent/self HTTP/1.1\r\nHost: x\r\nX-Consul-Token: c-token-1\r\n\r\n"} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, text)
	}
	if r := i.do(t, "checkout", "GET", "/v1/agent/self", ""); r.code != 200 {
		t.Errorf("%d %s", r.code, r.body)
	}
}

// counting takes changes in.
type counting struct{ n atomic.Int64 }

func (c *counting) Apply(context.Context, topology.Change) (uint64, error) {
	return uint64(c.n.Add(1)), nil
}

// TestAServiceThatIsCriticalForTooLongGoes, and not before.
func TestAServiceThatIsCriticalForTooLongGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		self := newNode("n", "127.0.0.1", "west")
		r := newRegistry(&counting{}, nil, newStore("", slog.New(slog.DiscardHandler)), self, DefaultPortMeta, new(atomic.Uint64), slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.run(ctx) }()
		synctest.Wait()
		d := &api.AgentServiceRegistration{ID: "x", Name: "checkout", Port: 1, Checks: api.AgentServiceChecks{
			{CheckID: "c", TTL: "10s", Status: passing, DeregisterCriticalServiceAfter: "90s"},
		}}
		if err := r.register(ctx, shop("checkout"), d, netip.MustParseAddr("10.0.0.1")); err != nil {
			t.Fatal(err)
		}
		count := func() int { all, _ := r.own(shop("checkout")).roster.Load(); return len(all.services) }
		own := r.all()[0]
		for range 30 { // renewed in time
			time.Sleep(9 * time.Second)
			if err := r.update(ctx, own.app, "c", passing, ""); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(11 * time.Second)
		if all, _ := r.own(shop("checkout")).roster.Load(); all.services[0].status() != critical {
			t.Error("not critical without being renewed")
		}
		time.Sleep(80 * time.Second)
		if err := r.update(ctx, own.app, "c", warning, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Second + 89*time.Second)
		if count() != 1 {
			t.Error("gone too early")
		}
		time.Sleep(2 * time.Second)
		if count() != 0 {
			t.Error("still there")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestSettingsAreChecked(t *testing.T) {
	token := Token{App: "shop/checkout"}
	token.Token.Env = "X"
	for name, c := range map[string]struct {
		settings Settings
		address  string
		path     string
	}{
		"all is well":          {Settings{Tokens: []Token{token}}, "0.0.0.0:8500", ""},
		"nobody":               {Settings{}, "127.0.0.1:8500", "tokens"},
		"nobody listens":       {Settings{}, "", ""},
		"no app":               {Settings{Tokens: []Token{{App: "checkout", Token: token.Token}}}, "127.0.0.1:8500", "tokens[0].app"},
		"no token":             {Settings{Tokens: []Token{{App: "shop/checkout"}}}, "127.0.0.1:8500", "tokens[0].token"},
		"anonymous":            {Settings{Anonymous: "shop/checkout"}, "127.0.0.1:8500", ""},
		"anonymous, localhost": {Settings{Anonymous: "shop/checkout"}, "localhost:8500", ""},
		"anonymous for all":    {Settings{Anonymous: "shop/checkout"}, ":8500", "anonymous"},
		"asked for":            {Settings{Anonymous: "shop/checkout", ExposeAnonymous: true}, "0.0.0.0:8500", ""},
		"anonymous nobody":     {Settings{Anonymous: "checkout"}, "127.0.0.1:8500", "anonymous"},
		"a key":                {Settings{Tokens: []Token{token}, PortMeta: "a b"}, "127.0.0.1:8500", "portMeta"},
		"half of TLS":          {Settings{Tokens: []Token{token}, TLS: &TLS{Cert: "x"}}, "127.0.0.1:8500", "tls"},
		"less than none":       {Settings{Tokens: []Token{token}, MaxConnections: -1}, "127.0.0.1:8500", "maxConnections"},
	} {
		wrong := c.settings.Check(c.address)
		if (len(wrong) == 0) != (c.path == "") || len(wrong) > 0 && (wrong[0].Path != c.path || len(wrong) > 1) {
			t.Errorf("%s: %v, want a mistake at %q", name, wrong, c.path)
		}
	}
}

// TestAnAppHasSoManyBytes, however it divides them up.
func TestAnAppHasSoManyBytes(t *testing.T) {
	r := lone(nil, "")
	long := strings.Repeat("x", mostBody/2)
	register := func(app string, n int, notes string) error {
		d := &api.AgentServiceRegistration{ID: fmt.Sprint(n), Name: app, Port: 1, Check: &api.AgentServiceCheck{CheckID: fmt.Sprint(n), TTL: "1h", Notes: notes}}
		return r.register(t.Context(), shop(app), d, netip.MustParseAddr("10.0.0.1"))
	}
	var refused error
	n := 0
	for ; refused == nil && n <= 2*mostBytes/len(long); n++ {
		refused = register("orders", n, long)
	}
	if refused == nil || !strings.Contains(refused.Error(), "shop/orders would have more than 16777216 bytes") || n < mostBytes/len(long) {
		t.Errorf("after %d: %v", n, refused)
	}
	if err := register("checkout", 0, long); err != nil {
		t.Errorf("another app has no room: %v", err)
	}
	for _, notes := range []string{"", long, long} { // in place of what is there
		if err := register("orders", 0, notes); err != nil {
			t.Error(err)
		}
	}
	if err := register("orders", n, long); err == nil {
		t.Error("one more was taken")
	}
}

// requestOf is a request as a client on this machine makes it.
func requestOf(method, path string, body io.Reader) *http.Request {
	q := httptest.NewRequest(method, path, body)
	q.Host = "localhost:8500"
	return q
}

// TestRequestsAreForKnownHosts so that no web page asks through an operator's browser.
func TestRequestsAreForKnownHosts(t *testing.T) {
	i := start(t, "", Settings{Hosts: []string{"consul.example.com"}}, selection("checkout"))
	for host, want := range map[string]string{"rebound.example": "421", "consul.example.com:8500": "200", "127.0.0.1": "200"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(i.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET /v1/agent/self HTTP/1.1\r\nHost: %s\r\nX-Consul-Token: c-token-1\r\nConnection: close\r\n\r\n", host)
		answer, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+want) {
			t.Errorf("host %s: %.40q, %v; want %s", host, answer, err, want)
		}
	}
}
