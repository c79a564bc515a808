package gateway

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// grpcBackend is a real gRPC server that knows one health service, its own name.
func grpcBackend(t *testing.T, name string) string {
	server := grpc.NewServer()
	h := health.NewServer()
	h.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(server, h)
	l := listen(t)
	done := make(chan struct{})
	go func() { defer close(done); server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return l.Addr().String()
}

// grpcClient dials addr as daprd does, with a host as :authority.
func grpcClient(t *testing.T, addr, host string) healthpb.HealthClient {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithAuthority(host), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return healthpb.NewHealthClient(conn)
}

func check(t *testing.T, c healthpb.HealthClient, service string) error {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := c.Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	return err
}

func TestPlaintextIsRefusedWithAdvice(t *testing.T) {
	gw := serve(t, Config{}, exports(1, map[string][]string{"orders": {grpcBackend(t, "orders")}}))
	err := check(t, grpcClient(t, gw.addr, ordersHost), "orders")
	if status.Code(err) != codes.Unavailable {
		t.Errorf("call: %v; want Unavailable", err)
	}
	if gw.refused(plaintextOff) == 0 || !strings.Contains(gw.log.String(), "mTLS") || !strings.Contains(gw.log.String(), "plaintext: true") {
		t.Errorf("%d refusals, logged:\n%s", gw.refused(plaintextOff), gw.log)
	}
}

func TestPlaintextIsRoutedByAuthority(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		gw := serve(t, Config{Plaintext: true, Peers: func(c net.Conn) { t.Error("a peer in plain text is handed over"); c.Close() }}, exports(1, map[string][]string{
			"orders": {deadAddress(t), grpcBackend(t, "orders")},
			"ledger": {grpcBackend(t, "ledger")},
		}), with)
		for host, name := range map[string]string{
			ordersHost + ":15443": "orders",
			ledgerHost:            "ledger",
		} {
			client := grpcClient(t, gw.addr, host)
			var calls sync.WaitGroup
			for range 20 { // at once over one connection
				calls.Go(func() {
					if err := check(t, client, name); err != nil {
						t.Errorf("%s: %v", host, err)
					}
				})
			}
			calls.Wait()
		}
		if err := check(t, grpcClient(t, gw.addr, peerHost), ""); err == nil || !strings.Contains(err.Error(), string(unknownName)) {
			t.Errorf("the resolver service in plain text: %v", err)
		}
		if _, _, err := call(t, gw.addr, "absent.shop.east.isthmus.internal"); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("TLS beside it: %v", err)
		}
	})
}

func TestPlaintextRefusalSaysWhy(t *testing.T) {
	gw := serve(t, Config{Plaintext: true}, exports(1, map[string][]string{"idle": nil, "dead": {deadAddress(t)}}))
	for host, reason := range map[string]reason{
		"secret.shop.east.isthmus.internal": unknownName,
		idleHost:                            noInstance,
		"dead.shop.east.isthmus.internal":   unreachable,
	} {
		err := check(t, grpcClient(t, gw.addr, host), "orders")
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), string(reason)) || !strings.Contains(err.Error(), host) {
			t.Errorf("%s: %v; want Unavailable and %s", host, err, reason)
		}
	}
}

// Go's HTTP/2 client sends its first request before the server's SETTINGS, gRPC's
// waits for them. Go's HTTP/2 server closes a connection that acknowledges SETTINGS
// which it did not send.
func TestPlaintextWithGoHTTP2(t *testing.T) {
	eachRelay(t, func(t *testing.T, with option) {
		server := &http.Server{
			Handler:   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }),
			Protocols: new(http.Protocols),
		}
		server.Protocols.SetUnencryptedHTTP2(true)
		l := listen(t)
		go server.Serve(l)
		t.Cleanup(func() { server.Close() })
		gw := serve(t, Config{Plaintext: true}, exports(1, map[string][]string{"orders": {l.Addr().String()}}), with)
		transport := &http.Transport{
			Protocols:   new(http.Protocols),
			DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("tcp", gw.addr) },
		}
		transport.Protocols.SetUnencryptedHTTP2(true)
		defer transport.CloseIdleConnections()
		for _, size := range []int{0, 10, 300_000} {
			body := bytes.Repeat([]byte("b"), size)
			resp, err := transport.RoundTrip(newRequest(t, body))
			if err != nil {
				t.Fatalf("request with %d bytes: %v", size, err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("request with %d bytes: answered with %d, %v", size, len(got), err)
			}
		}
		if n := gw.metric("isthmus_gateway_connections_accepted_total"); n != 1 {
			t.Errorf("%v connections; want one that all requests share", n)
		}
	})
}

func newRequest(t *testing.T, body []byte) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+ordersHost+"/", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// h2 writes what an HTTP/2 client sends.
func h2(write func(*http2.Framer)) []byte {
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	write(http2.NewFramer(&b, nil))
	return b.Bytes()
}

// request is the header block of a request to a host.
func request(host string, more ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/"}} {
		e.WriteField(f)
	}
	if host != "" {
		e.WriteField(hpack.HeaderField{Name: ":authority", Value: host})
	}
	for _, name := range more {
		e.WriteField(hpack.HeaderField{Name: name, Value: strings.Repeat("v", 1000)})
	}
	return b.Bytes()
}

// headers writes a request in as many frames as it takes for parts of a size.
func headers(f *http2.Framer, block []byte, size int) {
	first := true
	for part := range slices.Chunk(block, size) {
		block = block[len(part):]
		if first {
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: part, EndHeaders: len(block) == 0})
		} else {
			f.WriteContinuation(1, len(block) == 0, part)
		}
		first = false
	}
}

// All that a client sends reaches the app, but for the acknowledgement of the gateway's SETTINGS.
// The gateway adds a frame of its own.
func TestPreludeReachesTheAppUntouched(t *testing.T) {
	got := make(chan []byte, 1)
	addr := backend(t, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		got <- b
	})
	gw := serve(t, Config{Plaintext: true}, exports(1, map[string][]string{"orders": {addr}}))
	many := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for what, frames := range map[string]func(f *http2.Framer, ack func()){
		"acknowledged first": func(f *http2.Framer, ack func()) {
			f.WriteSettings()
			ack()
			headers(f, request(ordersHost), 1000)
		},
		"acknowledged after the request": func(f *http2.Framer, ack func()) {
			f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
			f.WriteWindowUpdate(0, 1<<20)
			headers(f, request(ordersHost), 1000)
			ack()
		},
		"acknowledged after data": func(f *http2.Framer, ack func()) {
			f.WriteSettings()
			headers(f, request(ordersHost), 1000)
			for range 3 {
				f.WriteData(1, false, make([]byte, 16384))
			}
			ack()
			f.WriteData(1, true, make([]byte, 16000))
		},
		"a ping and a priority before the request, in many frames": func(f *http2.Framer, ack func()) {
			f.WriteSettings()
			f.WritePing(false, [8]byte{1})
			ack()
			f.WritePriority(3, http2.PriorityParam{Weight: 7})
			headers(f, request(ordersHost, many...), 100)
		},
		"a second acknowledgement, meant for the app": func(f *http2.Framer, ack func()) {
			f.WriteSettings()
			ack()
			headers(f, request(ordersHost), 1000)
			f.WriteSettingsAck()
		},
	} {
		t.Run(what, func(t *testing.T) {
			want := h2(func(f *http2.Framer) { frames(f, func() {}) })
			sent := h2(func(f *http2.Framer) { frames(f, func() { f.WriteSettingsAck() }) })
			c := dialTCP(t, gw.addr)
			for part := range slices.Chunk(sent, 97) {
				c.Write(part)
			}
			c.CloseWrite()
			select {
			case b := <-got:
				if b = withoutMark(t, b, gw.id); !bytes.Equal(b, want) {
					t.Errorf("the app got %d bytes that are not the %d that it should", len(b), len(want))
				}
			case <-time.After(patience):
				t.Errorf("nothing arrived:\n%s", gw.log)
			}
			settings := make([]byte, 9)
			if _, err := io.ReadFull(c, settings); err != nil || !bytes.Equal(settings, []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) {
				t.Errorf("the gateway's own SETTINGS: % x, %v", settings, err)
			}
		})
	}
}

// withoutMark is what a gateway gives an app, without the frame that names the gateway.
func withoutMark(t *testing.T, b []byte, id gatewayID) []byte {
	t.Helper()
	mark := slices.Concat([]byte{0, 0, 16, byte(passedBy), 0, 0, 0, 0, 0}, id[:])
	if n := bytes.Count(b, mark); n != 1 {
		t.Errorf("the gateway's frame is there %d times, want 1", n)
	}
	return bytes.Replace(b, mark, nil, 1)
}

func TestRefusesABrokenPrelude(t *testing.T) {
	served := func(within time.Duration) *running {
		return serve(t, Config{Plaintext: true, HelloTimeout: within}, exports(1, map[string][]string{"orders": {deadAddress(t)}}))
	}
	hasty, patient := served(200*time.Millisecond), served(patience)
	for _, c := range []struct {
		what   string
		bytes  []byte
		reason reason
	}{
		{"no request", h2(func(f *http2.Framer) { f.WriteSettings(); f.WriteSettingsAck() }), helloTimeout},
		{"no acknowledgement", h2(func(f *http2.Framer) { f.WriteSettings(); headers(f, request(ordersHost), 1000) }), helloTimeout},
		{"a request without a name", h2(func(f *http2.Framer) { f.WriteSettings(); f.WriteSettingsAck(); headers(f, request(""), 1000) }), noName},
		{"HPACK that can't be", h2(func(f *http2.Framer) {
			f.WriteSettings()
			f.WriteSettingsAck()
			headers(f, []byte{0xff, 0xff, 0xff}, 1000)
		}), badHello},
		{"a request before SETTINGS", h2(func(f *http2.Framer) { headers(f, request(ordersHost), 1000); f.WriteSettingsAck() }), badHello},
		{"a frame too large", slices.Concat([]byte(http2.ClientPreface), []byte{0xff, 0xff, 0xff, 4, 0, 0, 0, 0, 0}), badHello},
		{"settings without end", h2(func(f *http2.Framer) {
			for range 9000 {
				f.WriteSettings()
			}
		}), helloTooLong},
	} {
		t.Run(c.what, func(t *testing.T) {
			gw := patient
			if c.reason == helloTimeout {
				gw = hasty
			}
			before := gw.refused(c.reason)
			conn := dialTCP(t, gw.addr)
			go conn.Write(c.bytes)
			io.Copy(io.Discard, conn)
			if gw.refused(c.reason) != before+1 {
				t.Errorf("not counted as %s:\n%s", c.reason, gw.log)
			}
		})
	}
}

func FuzzPrelude(f *testing.F) {
	f.Add(h2(func(f *http2.Framer) { f.WriteSettings(); f.WriteSettingsAck(); headers(f, request(ordersHost), 1000) }), uint16(5))
	f.Add(h2(func(f *http2.Framer) { f.WriteSettings(); headers(f, request(ordersHost), 10); f.WriteSettingsAck() }), uint16(0))
	f.Add(h2(func(f *http2.Framer) { f.WriteSettingsAck(); f.WriteSettingsAck(); headers(f, request(""), 10) }), uint16(9))
	f.Add(h2(func(f *http2.Framer) { f.WriteData(1, true, []byte("x")); f.WriteGoAway(0, 0, nil) }), uint16(3))
	f.Add([]byte(http2.ClientPreface+"garbage"), uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, segment uint16) {
		read := func(r io.Reader) (greeting, *refusal) {
			in := newReplay(fromBytes{Reader: r})
			defer in.release()
			g, refused := greetHTTP2(in, io.Discard, gatewayID{7})
			if refused == nil {
				g.bytes = withoutMark(t, g.bytes, gatewayID{7})
			}
			return g, refused
		}
		whole, refused := read(bytes.NewReader(b))
		split, refused2 := read(&segments{b, int(segment)%500 + 1})
		if (refused == nil) != (refused2 == nil) || whole.host != split.host {
			t.Fatalf("in segments: %q, %v; whole: %q, %v", split.host, refused2, whole.host, refused)
		}
		if refused != nil {
			return
		}
		for _, g := range []greeting{whole, split} { // b without nine bytes, as far as it was read
			if n := len(g.bytes); n > len(b)-9 || !isWithoutAck(b[:n+9], g.bytes) {
				t.Fatalf("%d bytes kept of %d are not those without an acknowledgement", n, len(b))
			}
		}
	})
}

// isWithoutAck tells whether got is all but one empty SETTINGS frame of b.
func isWithoutAck(b, got []byte) bool {
	for i := 0; i+9 <= len(b); i++ {
		frame := b[i : i+9]
		if bytes.Equal(frame[:4], []byte{0, 0, 0, 4}) && frame[4]&1 == 1 && bytes.Equal(b[:i], got[:i]) && bytes.Equal(b[i+9:], got[i:]) {
			return true
		}
	}
	return false
}
