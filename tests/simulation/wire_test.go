package simulation

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// caller is who calls, by its certificate.
type caller struct {
	Cluster string
	App     catalog.App
}

func (c caller) String() string { return c.App.String() + " in " + c.Cluster }

// mtls has of mTLS what counts here, and costs little: the client names its server, both ends name
// themselves, and the client checks the server's app. There is no cipher.
type mtls struct {
	self caller
	want string // app-id of the server, for a client
}

// greeting is what an end says first.
type greeting struct {
	Server string `json:",omitempty"` // name, of a client
	Self   caller
	Alert  string `json:",omitempty"` // instead
}

// peerInfo tells a server who its client is.
type peerInfo struct {
	credentials.CommonAuthInfo
	caller
}

func (peerInfo) AuthType() string { return "simulated" }

func (m *mtls) ClientHandshake(ctx context.Context, server string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	if err := say(c, greeting{Server: server, Self: m.self}); err != nil {
		return nil, nil, err
	}
	_, g, err := hear(c)
	switch {
	case err != nil:
		return nil, nil, err
	case g.Alert != "":
		return nil, nil, errors.New("remote error: tls: " + g.Alert)
	case g.Self.App.ID != m.want:
		return nil, nil, fmt.Errorf("x509: it is %s; want %s", g.Self, m.want)
	}
	return c, info(g.Self), nil
}

func (m *mtls) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	_, g, err := hear(c)
	if err == nil {
		err = say(c, greeting{Self: m.self})
	}
	return c, info(g.Self), err
}

func info(of caller) peerInfo {
	return peerInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, of}
}

func (m *mtls) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "simulated"}
}

func (m *mtls) Clone() credentials.TransportCredentials { return &mtls{m.self, m.want} }

func (m *mtls) OverrideServerName(string) error { return nil }

func say(c net.Conn, g greeting) error {
	text, err := json.Marshal(g)
	if err == nil {
		_, err = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...))
	}
	return err
}

// hear reads a greeting, and returns its bytes, too.
func hear(c net.Conn) (raw []byte, g greeting, err error) {
	raw = make([]byte, 2)
	if _, err = io.ReadFull(c, raw); err != nil {
		return raw, g, err
	}
	text := make([]byte, binary.BigEndian.Uint16(raw))
	if _, err = io.ReadFull(c, text); err == nil {
		err = json.Unmarshal(text, &g)
	}
	return append(raw, text...), g, err
}

// callsPort is where a gateway takes calls. Its port for peers is gatewayPort; a real one tells both
// apart by the name that the client asks for.
const callsPort = "15444"

// gatewayAt is the gateway with an address of Cluster objects.
func (w *world) gatewayAt(address string) *gateway {
	for _, c := range w.clusters {
		for i, g := range c.gateways {
			if gatewayAddress(c.name, i) == address {
				return g
			}
		}
	}
	return nil
}

// dialPeers dials gateways for links.
func (w *world) dialPeers(from string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		if g := w.gatewayAt(address); g != nil {
			address = g.host + ":" + gatewayPort
		}
		return w.net.Host(from).Dial(ctx, address)
	}
}

// serveCalls passes calls on, as the table of the service says.
func (g *gateway) serveCalls(l net.Listener, s *service) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		g.serving.Go(func() { g.pass(c, s) })
	}
}

func (g *gateway) pass(c net.Conn, s *service) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	raw, hello, err := hear(c)
	if err != nil {
		return
	}
	to, alert := g.destination(hello.Server, s)
	if alert != "" {
		_ = say(c, greeting{Alert: alert})
		return
	}
	_ = c.SetDeadline(time.Time{})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var pod net.Conn
	for _, address := range to {
		if pod, err = g.cluster.world.net.Host(g.host).Dial(ctx, address); err == nil {
			break
		}
	}
	if pod == nil {
		_ = say(c, greeting{Alert: "internal error"})
		return
	}
	defer pod.Close()
	if _, err := pod.Write(raw); err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(c, pod)
		_ = c.Close()
		_ = pod.Close()
	})
	_, _ = io.Copy(pod, c)
	_ = pod.Close()
	_ = c.Close()
	back.Wait()
}

// destination is where a name leads, the first to be tried first, or the alert that refuses it.
func (g *gateway) destination(name string, s *service) (to []string, alert string) {
	table, ok := s.topology.Gateway().Load()
	if !ok || table == nil {
		return nil, "internal error"
	}
	b, part, ok := table.Lookup(name)
	if !ok {
		return nil, "unrecognized name"
	}
	to = b.Instances
	if token, ok := part.Instance(); ok {
		to = nil
		if i, ok := b.Instance(token); ok {
			to = b.Instances[i : i+1]
		}
	} else if n, ok := part.Shard(); ok {
		if i, ok := b.Shard(n); ok {
			to = append(b.Instances[i:i:i], b.Instances[i:]...)
			to = append(to, b.Instances[:i]...)
		}
	}
	if len(to) == 0 {
		return nil, "internal error"
	}
	return to, ""
}

// ca signs the certificates of all clusters.
type ca struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string

	mu     sync.Mutex
	issued map[string]*identity.Signed
}

// authority is made once: its certificates hold on each fake clock.
var authority = sync.OnceValue(func() *ca {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "simulation"}, NotBefore: notBefore, NotAfter: notAfter,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return &ca{cert: cert, key: key, pem: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), issued: map[string]*identity.Signed{}}
})

var (
	notBefore = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	notAfter  = time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC)
)

func (a *ca) issue(domain string, app catalog.App) (*identity.Signed, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := identity.ID{TrustDomain: domain, App: app}.String()
	if s := a.issued[id]; s != nil {
		return s, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	uri, err := url.Parse(id)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(len(a.issued) + 2)), NotBefore: notBefore, NotAfter: notAfter, URIs: []*url.URL{uri},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	s := &identity.Signed{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: key}
	a.issued[id] = s
	return s, nil
}
