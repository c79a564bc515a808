// Package console is the edge at which people open the console: package pages, behind the gates of
// package login. It asks the service it is part of by a connection within the process, which names
// the person and their rights.
package console

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz/keypair"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console/login"
	pages "github.com/isthmus-mesh/isthmus/resolver-service/edges/console/pages"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
	"github.com/isthmus-mesh/isthmus/resolver-service/limits/bounded"
)

// Settings are the block "console" of isthmus.yaml.
type Settings struct {
	URL            string    `yaml:"url"` // as browsers see it; empty on loopback: http and the address
	TLS            *TLS      `yaml:"tls"`
	OIDC           *OIDC     `yaml:"oidc"`
	Download       bool      `yaml:"download"` // changes are made elsewhere: nothing is written
	Consoles       []Cluster `yaml:"consoles"` // of other clusters, which pages link to
	MaxConnections int       `yaml:"maxConnections"`
}

// TLS has the server's certificate: files in PEM, which are read again when they change.
type TLS struct {
	Cert string `yaml:"cert" file:""`
	Key  string `yaml:"key" file:""`
}

// Cluster is the console of another cluster.
type Cluster struct {
	Cluster string `yaml:"cluster"`
	URL     string `yaml:"url"`
}

// OIDC is the provider that says who somebody is.
type OIDC struct {
	Issuer       string           `yaml:"issuer"`
	ClientID     string           `yaml:"clientID"`
	ClientSecret *settings.Secret `yaml:"clientSecret"`
	CA           string           `yaml:"ca" file:""` // roots of the provider's certificate, in PEM
	Scopes       []string         `yaml:"scopes"`
	NameClaim    string           `yaml:"nameClaim"`
	GroupsClaim  string           `yaml:"groupsClaim"`
	Groups       Groups           `yaml:"groups"`
	Session      time.Duration    `yaml:"session"` // how long one stays in
}

// Groups are whose members have a right.
type Groups struct {
	Read  []string `yaml:"read"`
	Write []string `yaml:"write"`
	Link  []string `yaml:"link"`
}

const (
	example               = "127.0.0.1:7483"
	defaultMaxConnections = 512
	// requestGrace is how long a connection may wait for a request before it gives way to others.
	requestGrace = 100 * time.Millisecond
)

// Edge describes the console that listens at an address; empty for nowhere.
func Edge(address string, s *Settings) edge.Edge {
	return edge.Edge{
		Name: "console", Listen: edge.At("console", address), Example: example,
		Claim: edge.Claim{Key: "console.maxConnections", Max: s.MaxConnections, Default: defaultMaxConnections, Part: 16},
		Check: func(doc *strict.Document) { s.check(doc, address) },
		Build: s.build,
	}
}

func (s *Settings) check(doc *strict.Document, address string) {
	if doc.Wrong("console") || doc.Wrong("listen.console") {
		return
	}
	if address == "" {
		if doc.Has("console") {
			doc.Refuse("console", "nobody listens for it", "write listen: {console: \""+example+"\"}, or leave console out")
		}
		return
	}
	if beyond := !edge.OnLoopback(address); beyond && s.OIDC == nil {
		doc.Refuse("listen.console", fmt.Sprintf("whoever reaches %s would be let in by nobody who knows them", address),
			"write console.oidc, or a loopback address such as "+example)
	} else if beyond && s.TLS == nil {
		doc.Refuse("console.tls", "is missing, and "+address+" is not on loopback", "write tls: {cert: …, key: …}")
	}
	if s.TLS != nil && (s.TLS.Cert == "" || s.TLS.Key == "") {
		doc.Refuse("console.tls", "names no certificate with its key", "write tls: {cert: …, key: …}")
	}
	if s.URL == "" && (s.OIDC != nil || s.TLS != nil) {
		doc.Refuse("console.url", "is missing", "write the URL that browsers have, such as https://isthmus.example.com")
	} else if s.URL != "" && (s.TLS != nil) != strings.HasPrefix(s.URL, "https://") {
		doc.Refuse("console.url", s.URL+" and console.tls do not fit", "write https:// with tls, and http:// without")
	}
	if s.OIDC != nil && s.URL != "" {
		doc.Merge("console.oidc", s.OIDC.config(s.URL).Check())
	}
	for i, c := range s.Consoles {
		at := fmt.Sprintf("console.consoles[%d]", i)
		if err := catalog.CheckCluster(c.Cluster); err != nil {
			doc.Refuse(at+".cluster", err.Error(), "write the name of another cluster")
		}
		if u, err := url.Parse(c.URL); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			doc.Refuse(at+".url", fmt.Sprintf("%q is no URL of a console", c.URL), "write one such as https://east.example.com")
		}
	}
}

func (o *OIDC) config(at string) login.Config {
	return login.Config{
		URL: at, Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: o.ClientSecret, CAFile: o.CA, Scopes: o.Scopes,
		NameClaim: o.NameClaim, GroupsClaim: o.GroupsClaim, Groups: login.Groups(o.Groups), Life: o.Session,
	}
}

// build makes the edge.
func (s *Settings) build(host edge.Host) (edge.Part, error) {
	var part edge.Part
	l, log := net.Listener(host.Listen.Bound(bounded.Bounds{
		Max: host.Listen.Connections, PerClient: max(host.Listen.Connections/2, 1), Pending: host.Listen.Connections, Grace: requestGrace, Wait: 5 * requestGrace,
	})), host.Tell.Log.With("listener", "console")
	if s.TLS != nil {
		pair, err := keypair.Load(identity.ConsoleCertificate, s.TLS.Cert, s.TLS.Key, host.Tell.Log)
		if err != nil {
			return part, fmt.Errorf("console.tls: %w", err)
		}
		part.Trusted = func() []identity.Trusted { return []identity.Trusted{pair.Trusted()} }
		l = tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.Get, NextProtos: []string{"http/1.1"}})
	}
	within := bufconn.Listen(256 << 10)
	server := host.Listen.Operators(admit)
	conn, err := grpc.NewClient("passthrough:///"+host.Cluster.Name, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return within.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostAnswer), grpc.MaxCallSendMsgSize(mostAnswer)))
	if err != nil {
		return part, fmt.Errorf("console: %w", err)
	}
	shown, err := pages.New(pages.Options{Conn: conn, As: asPerson, Download: s.Download, Consoles: s.consoles(), Log: log})
	if err != nil {
		return part, fmt.Errorf("console: %w", err)
	}
	part.Run = func(ctx context.Context) error {
		gate, err := s.gate(ctx, host, log)
		if err != nil {
			return fmt.Errorf("console: %w", err)
		}
		defer conn.Close()
		return edge.Together(
			func(ctx context.Context) error { return edge.ServeGRPC(ctx, within, server) },
			shown.Run,
			func(ctx context.Context) error {
				return pages.Serve(ctx, l, gate.Handler(shown.Handler()), bounded.HTTPState, log)
			})(ctx)
	}
	return part, nil
}

// mostAnswer bounds a message within the process; a list of every object fits.
const mostAnswer = 256 << 20

func (s *Settings) consoles() map[string]string {
	all := map[string]string{}
	for _, c := range s.Consoles {
		all[c.Cluster] = c.URL
	}
	return all
}

// gate is who lets people in. Without a provider it is a URL that works once, in a file for the user
// that the service runs as.
func (s *Settings) gate(ctx context.Context, host edge.Host, log *slog.Logger) (*login.Gate, error) {
	if s.OIDC != nil {
		return login.NewOIDC(ctx, s.OIDC.config(s.URL), log)
	}
	at := s.URL
	if at == "" {
		at = "http://" + host.Listen.Listener.Addr().String()
	}
	file := host.Listen.Directory + ".url"
	once, err := login.NewOnce(login.OnceConfig{URL: at, Person: "user of " + file, KeyFile: file}, log)
	if err != nil {
		return nil, err
	}
	log.Info("the console's next URL to enter is in a file", "file", file)
	return once.Gate, nil
}

// The metadata of calls within the process. Nobody else reaches that server, so they are believed.
const (
	personKey = "isthmus-person"
	rightKey  = "isthmus-right"
)

// asPerson is the context of a call of somebody who has come in.
func asPerson(ctx context.Context, s *login.Session) context.Context {
	md := metadata.Pairs(personKey, url.QueryEscape(s.Person))
	for _, r := range s.Rights {
		md.Append(rightKey, string(r))
	}
	if s.Rights == nil {
		md.Append(rightKey, string(login.Read), string(login.Write), string(login.Link))
	}
	return metadata.NewOutgoingContext(ctx, md)
}

// admit tells who makes a call, and refuses what they may not do.
func admit(ctx context.Context, verb string) (name string, again func(context.Context) error, err error) {
	person, _ := url.QueryUnescape(strings.Join(metadata.ValueFromIncomingContext(ctx, personKey), " "))
	rights := metadata.ValueFromIncomingContext(ctx, rightKey)
	if !slices.Contains(rights, verb) {
		return person, nil, status.Errorf(codes.PermissionDenied, "%s may not %s: that takes one of the groups that console.oidc.groups.%[2]s of isthmus.yaml names", person, verb)
	}
	return person, nil, nil
}
