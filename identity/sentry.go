package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	sentryv1 "github.com/isthmus-mesh/isthmus/api/isthmus/sentry/v1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// signMethod is the RPC by which Sentry signs certificates.
const signMethod = "/dapr.proto.sentry.v1.CA/SignCertificate"

// signTimeout bounds one attempt, including the connection. daprd allows five times 3 s.
const signTimeout = 10 * time.Second

// sentryOrigin requests certificates from Dapr's Sentry.
type sentryOrigin struct {
	cfg     Sentry
	app     catalog.App
	timeout time.Duration
}

func newSentryOrigin(cfg Sentry, app catalog.App) (*sentryOrigin, error) {
	if err := app.Check(); err != nil {
		return nil, err
	}
	return &sentryOrigin{cfg: cfg, app: app, timeout: signTimeout}, nil
}

func (o *sentryOrigin) String() string { return "sentry " + o.cfg.Address }

// load requests a certificate at half the validity of the old one, give or take a tenth, and soon
// after a change of the trust anchors. New anchors apply at once.
func (o *sentryOrigin) load(ctx context.Context, old *material) (*material, error) {
	now := time.Now()
	anchors, from, missing := o.anchors(ctx)
	if missing != nil {
		if old == nil || !old.due(now) {
			return nil, missing
		}
		anchors, from = old.roots, old.from // a renewal does not wait for them
	}
	if old != nil && old.from != from && old.valid(now) == nil {
		next := *old
		next.trust(anchors)
		next.from = from
		next.renewIn(now.Sub(old.obtained))
		return &next, nil
	}
	if old != nil && old.from == from && !old.due(now) {
		return old, nil
	}
	m, err := o.requestOrCached(ctx, anchors, from)
	if err != nil {
		return nil, joinErrors(err, missing)
	}
	m.from = from
	tenth := max(0, m.ends.NotAfter.Sub(now)/20) // of half its validity
	m.renewIn(max(9*tenth+mathrand.N(2*tenth+1), time.Second))
	return m, nil
}

// anchors returns the roots that Sentry and peers must chain to, and their fingerprint.
func (o *sentryOrigin) anchors(ctx context.Context) (roots, [32]byte, error) {
	text, name := []byte(o.cfg.TrustAnchors), "trustAnchors"
	if a := o.cfg.Anchors; a != nil {
		var err error
		if text, err = a.Read(ctx); err != nil {
			return nil, [32]byte{}, fmt.Errorf("trust anchors: %w", err)
		}
		name = "trust anchors: " + a.String()
	}
	if o.cfg.TrustAnchorsFile != "" {
		var err error
		if text, err = ReadFile(o.cfg.TrustAnchorsFile); err != nil {
			return nil, [32]byte{}, fmt.Errorf("trustAnchorsFile: %w; put Sentry's ca.crt there", err)
		}
		name = "trustAnchorsFile " + o.cfg.TrustAnchorsFile
	}
	certs, err := parseCertificates(text)
	if err != nil {
		return nil, [32]byte{}, fmt.Errorf("%s: %w", name, err)
	}
	return certs, sha256.Sum256(text), nil
}

// request makes a key and requests a certificate for it.
func (o *sentryOrigin) request(ctx context.Context, anchors roots) (*material, error) {
	if first := o.cfg.First; first != nil {
		o.cfg.First = nil
		return o.accept(first.Certificate, first.Key, anchors)
	}
	key, csr, err := Request()
	if err != nil {
		return nil, err
	}
	req := &sentryv1.SignCertificateRequest{
		Id:                        o.app.ID,
		Namespace:                 o.app.Namespace,
		TrustDomain:               o.cfg.AppTrustDomain,
		CertificateSigningRequest: csr,
	}
	if o.cfg.Ask == nil {
		if req.Token, req.TokenValidator, err = o.token(); err != nil {
			return nil, err
		}
	}
	text, err := o.sign(ctx, anchors, req)
	if err != nil {
		return nil, err
	}
	return o.accept(text, key, anchors)
}

// token returns the token for Sentry, and its validator. In Kubernetes, where Sentry runs with
// the same variable set, that is Kubernetes.
func (o *sentryOrigin) token() (string, sentryv1.TokenValidator, error) {
	token := string(o.cfg.Token)
	if o.cfg.TokenFile != "" {
		text, err := ReadFile(o.cfg.TokenFile)
		if err != nil {
			return "", 0, fmt.Errorf("tokenFile: %w; put the token for Sentry there", err)
		}
		if token = strings.TrimSpace(string(text)); token == "" {
			return "", 0, fmt.Errorf("tokenFile %s is empty", o.cfg.TokenFile)
		}
	}
	switch {
	case token == "":
		return "", sentryv1.TokenValidator_TOKEN_VALIDATOR_UNSPECIFIED, nil
	case os.Getenv("KUBERNETES_SERVICE_HOST") != "":
		return token, sentryv1.TokenValidator_TOKEN_VALIDATOR_KUBERNETES, nil
	default:
		return token, sentryv1.TokenValidator_TOKEN_VALIDATOR_JWKS, nil
	}
}

// sign sends a request over a connection of its own: renewals are hours apart.
func (o *sentryOrigin) sign(ctx context.Context, anchors roots, req *sentryv1.SignCertificateRequest) (text []byte, err error) {
	within := o.timeout
	if end, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(end).Round(100*time.Millisecond))
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if o.cfg.Ask != nil {
		return o.cfg.Ask(ctx, req.GetCertificateSigningRequest())
	}
	// The passthrough scheme leaves the name to the operating system, whatever resolvers the
	// process has registered.
	conn, err := grpc.NewClient("passthrough:///"+o.cfg.Address,
		grpc.WithTransportCredentials(credentials.NewTLS(o.tls(anchors))))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	var resp sentryv1.SignCertificateResponse
	if err := conn.Invoke(ctx, signMethod, req, &resp); err != nil {
		return nil, o.explain(err, within)
	}
	return resp.GetWorkloadCertificate(), nil
}

// tls checks that the server is Sentry. There is no certificate to present yet.
func (o *sentryOrigin) tls(anchors roots) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // replaced by VerifyConnection
		VerifyConnection: func(cs tls.ConnectionState) error {
			want, err := o.cfg.id()
			if err != nil {
				return err
			}
			got, err := verifyChain(cs.PeerCertificates, anchors, time.Now(), ofServer)
			if err != nil {
				return fmt.Errorf("its certificate does not chain to the trust anchors, or is not for it: %w", err)
			}
			if got != want {
				return fmt.Errorf("it is %s; want %s: set trustDomain and namespace to the control plane's", got, want)
			}
			return nil
		},
	}
}

// ErrNoSentry marks an error of a Sentry that does not answer at all.
var ErrNoSentry = errors.New("no Sentry answers")

// noSentry is such an error, in words.
type noSentry string

// Error is the words.
func (n noSentry) Error() string { return string(n) }

// Is makes it ErrNoSentry.
func (noSentry) Is(target error) bool { return target == ErrNoSentry }

// explain removes gRPC's wrapping from an error, and adds what to do.
func (o *sentryOrigin) explain(err error, within time.Duration) error {
	s := status.Convert(err)
	text := s.Message()
	if _, inner, ok := strings.Cut(text, `desc = "transport: `); ok {
		text = strings.TrimSuffix(strings.ReplaceAll(inner, `\"`, `"`), `"`)
		for _, said := range []string{"Error while dialing: ", "dial tcp " + o.cfg.Address + ": ", "dial tcp: ", "connect: "} {
			text = strings.TrimPrefix(text, said)
		}
	}
	switch s.Code() {
	case codes.Unavailable:
		if strings.Contains(text, "handshake") {
			return errors.New(text) // somebody answers, and is another
		}
		return noSentry(text)
	case codes.DeadlineExceeded:
		return noSentry(fmt.Sprintf("no answer within %s: %s", within, text))
	case codes.Unimplemented:
		return fmt.Errorf("it speaks gRPC but is no Sentry: %s", text)
	case codes.InvalidArgument, codes.PermissionDenied:
		if o.cfg.Token == "" && o.cfg.TokenFile == "" {
			return fmt.Errorf("refused to sign for app %s: %s; no token was sent: set tokenFile", o.app, text)
		}
	}
	return fmt.Errorf("refused to sign for app %s: %s: %s", o.app, s.Code(), text)
}

// accept checks the certificate from Sentry.
func (o *sentryOrigin) accept(text []byte, key *ecdsa.PrivateKey, anchors roots) (*material, error) {
	chain, err := parseCertificates(text)
	if err != nil {
		return nil, fmt.Errorf("the certificate it signed: %w", err)
	}
	if !key.PublicKey.Equal(chain[0].PublicKey) {
		return nil, errors.New("the certificate it signed is for another key")
	}
	if _, _, err := x509svid.Verify(chain, anchors); err != nil {
		return nil, fmt.Errorf("the certificate it signed: %w", err)
	}
	cert := &tls.Certificate{PrivateKey: key, Leaf: chain[0]}
	for _, c := range chain {
		cert.Certificate = append(cert.Certificate, c.Raw)
	}
	return newMaterial(cert, anchors)
}
