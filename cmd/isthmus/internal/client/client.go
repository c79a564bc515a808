// Package client connects the command line to a resolver service and says in plain
// words why that failed.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/kube"
	"github.com/isthmus-mesh/isthmus/identity"
)

// Options say which service to ask, and as whom.
type Options struct {
	Server string // "host:port" or "unix:///path"
	Socket string // instead of Server: that of listen.operator, which needs no certificate
	// Kubeconfig and KubeContext are instead of Server for a service that is reached through a
	// Kubernetes API server, as the user there. One of them is said. KubeNamespace has the
	// service's pods; empty: isthmus-system.
	Kubeconfig, KubeContext, KubeNamespace string

	Identity string // directory with cert.pem, key.pem and ca.pem
	Sentry   string // "host:port" of Dapr's Sentry, which is asked for a certificate
	Anchors  string // file with Sentry's roots; empty: DAPR_TRUST_ANCHORS has them
	// SentryNamespace and SentryTrustDomain are in the identity that Sentry must show; empty:
	// those that the environment has, or else Dapr's defaults outside of Kubernetes.
	SentryNamespace, SentryTrustDomain string
	// AppTrustDomain is the trust domain that Sentry's certificate is to be in; empty: Dapr's
	// default.
	AppTrustDomain string
	Insecure       bool // plain text
	// Cluster is the one whose resolver service must answer; empty: that of any. Expect says
	// instead which app the service must be: "namespace/app-id", where a "*" at the end stands
	// for any resolver service whose name begins so.
	Cluster, Expect string
	Context         string // name of the context that this is of, for messages; empty: none

	// Note is told what the user should know although nothing has failed; nil: nobody is.
	Note func(text string)
}

// Service is the service's address and, where one says it, the context, for messages.
func (o Options) Service() string {
	at := cmp.Or(o.Socket, o.Server)
	if o.OnKubernetes() {
		at = o.Namespace() + " in Kubernetes, kubeconfig " + cmp.Or(o.KubeContext, o.Kubeconfig)
	}
	if o.Context == "" {
		return at
	}
	return at + " (context " + o.Context + ")"
}

// Check returns the mistakes in the options, asking nobody.
func (o Options) Check() error {
	if _, err := o.identity(); err != nil {
		return err
	}
	if o.Server == "" && o.Socket == "" && !o.OnKubernetes() {
		return fmt.Errorf("%w: no service is named; name one by --server host:port", ErrUse)
	}
	_, err := o.expectation()
	return err
}

// Plain tells whether the service is asked in plain text.
func (o Options) Plain() bool { return o.Insecure || o.Socket != "" }

// Unnamed tells whether no certificate says which cluster's the service is.
func (o Options) Unnamed() bool { return o.Plain() || o.OnKubernetes() }

// target is the service's address for gRPC.
func (o Options) target() (string, error) {
	switch {
	case o.Socket != "":
		path, err := filepath.Abs(o.Socket)
		return "unix://" + path, err
	case strings.HasPrefix(o.Server, "unix:"):
		return o.Server, nil
	default:
		return "passthrough:///" + o.Server, nil
	}
}

// ErrUse marks errors of how the command line was used.
var ErrUse = errors.New("wrong use")

// Conn is a connection to a service.
type Conn struct {
	*grpc.ClientConn
	options Options
	cluster string        // as the service says; empty: it was not asked
	way     *kube.Cluster // that the connection goes through; nil: none
}

// Close closes the connection.
func (c *Conn) Close() error {
	err := c.ClientConn.Close()
	if c.way != nil {
		c.way.Close()
	}
	return err
}

// Service is the service's address, for messages.
func (c *Conn) Service() string { return c.options.Service() }

// maxMessage bounds an answer; a list of every object fits.
const maxMessage = 256 << 20

// answers lets an answer, or a request, be as large as it gets, and notes how calls end.
func answers() []grpc.DialOption {
	return append(noting(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
}

// Dial prepares a connection. The first call makes it. Where Sentry does not answer, the operator
// socket of a service on this machine stands in.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	socket := o.inPlaceOfSentry()
	source, err := o.source(ctx, socket != "")
	if socket != "" && errors.Is(err, identity.ErrNoSentry) && ctx.Err() == nil {
		if o.Note != nil {
			o.Note(fmt.Sprintf("Sentry at %s does not answer; asking by the operator socket %s instead", o.Sentry, socket))
		}
		o.Server, o.Sentry, o.Anchors, o.Socket = "", "", "", socket
		source, err = o.source(ctx, false)
	}
	if err != nil {
		return nil, err
	}
	if o.OnKubernetes() {
		return dialKubernetes(ctx, o)
	}
	expect, err := o.expectation()
	if err != nil {
		return nil, err
	}
	target, err := o.target()
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(target, append(answers(), grpc.WithTransportCredentials(source.ClientCredentials(expect)), grpc.WithNoProxy())...)
	if err != nil {
		return nil, fmt.Errorf("%w: --server %q: %w; want host:port or unix:///path", ErrUse, o.Server, err)
	}
	return &Conn{ClientConn: conn, options: o}, nil
}

// source is who asks. Hurried gives Sentry less time, which never has all of the command's: its
// error says more than that the command had no answer.
func (o Options) source(ctx context.Context, hurried bool) (*identity.Source, error) {
	patience := sentryAlone
	if hurried {
		patience = sentryPatience
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cfg, err := o.identity()
	if err != nil {
		return nil, err
	}
	var as catalog.App // any: files say themselves whose they are
	if cfg.Sentry != nil {
		as = identity.CLIApp("")
	}
	source, err := identity.New(cfg, as, slog.New(slog.DiscardHandler))
	if err != nil || o.Unnamed() {
		return source, err
	}
	if err = source.Load(limited); err != nil && cfg.Sentry != nil {
		err = o.sentryError(err)
	}
	return source, err
}

// CheckSentry connects to Sentry, if the certificate is from there, and checks who answers.
func (o Options) CheckSentry(ctx context.Context) error {
	cfg, err := o.identity()
	if err != nil || cfg.Sentry == nil {
		return err
	}
	source, err := identity.New(cfg, identity.CLIApp(""), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, sentryPatience)
	defer cancel()
	if err = source.CheckSentry(limited); err != nil && limited.Err() != nil {
		err = fmt.Errorf("%w: no answer within %s", err, sentryPatience)
	}
	return err
}

// sentryError says which flags correct what went wrong at Sentry.
func (o Options) sentryError(err error) error {
	const control = "set trustDomain and namespace to the control plane's"
	if before, after, ok := strings.Cut(err.Error(), control); ok {
		return fmt.Errorf("%sname the control plane's by --sentry-trust-domain and --sentry-namespace%s; Dapr's chart has cluster.local and dapr-system%s", before, after, o.inContext())
	}
	return fmt.Errorf("%w; name Dapr's Sentry by --sentry or ISTHMUS_SENTRY_ADDRESS, and its ca.crt by --trust-anchors%s; %s", err, o.inContext(), localAdvice)
}

const localAdvice = "on the service's own machine, --socket <dataDir>/operator-<cluster>.sock needs no certificate"

func (o Options) inContext() string {
	if o.Context == "" {
		return ""
	}
	return "; the context is " + o.Context
}

// identity is where what proves who asks comes from: exactly one of five.
func (o Options) identity() (identity.Config, error) {
	var named []string
	for flag, set := range map[string]bool{"--identity": o.Identity != "", "--sentry": o.Sentry != "", "--insecure": o.Insecure, "--socket": o.Socket != "", "--kubeconfig": o.OnKubernetes()} {
		if set {
			named = append(named, flag)
		}
	}
	switch {
	case o.Server != "" && o.Socket != "":
		return identity.Config{}, fmt.Errorf("%w: --server and --socket exclude each other; keep one", ErrUse)
	case o.Server != "" && o.OnKubernetes():
		return identity.Config{}, fmt.Errorf("%w: --server and --kubeconfig exclude each other; keep one", ErrUse)
	case o.OnKubernetes() && o.Expect != "":
		return identity.Config{}, fmt.Errorf("%w: --server-identity is for a service with a certificate; with --kubeconfig the API server leads to the service, and --cluster may name it", ErrUse)
	case o.Anchors != "" && o.Sentry == "":
		return identity.Config{}, fmt.Errorf("%w: --trust-anchors goes with --sentry, which is not there", ErrUse)
	case o.Sentry != "" && o.Anchors == "" && os.Getenv("DAPR_TRUST_ANCHORS") == "":
		return identity.Config{}, fmt.Errorf("%w: nothing says whether to trust the Sentry at %s; name its ca.crt by --trust-anchors, "+
			"or have the text in DAPR_TRUST_ANCHORS", ErrUse, o.Sentry)
	case len(named) > 1:
		slices.Sort(named)
		return identity.Config{}, fmt.Errorf("%w: %s exclude each other; keep one", ErrUse, strings.Join(named, " and "))
	case o.Unnamed():
		return identity.Config{Insecure: true}, nil
	case o.Sentry != "":
		return identity.Config{Sentry: &identity.Sentry{Address: o.Sentry, TrustAnchorsFile: o.Anchors, Namespace: o.SentryNamespace, TrustDomain: o.SentryTrustDomain, AppTrustDomain: o.AppTrustDomain, Keep: keep()}}, nil
	case o.Identity == "":
		return identity.Config{}, fmt.Errorf("%w: nothing says as whom to ask %s; name Dapr's Sentry, which gives you a certificate, by --sentry "+
			"and its roots by --trust-anchors, or a directory with cert.pem, key.pem and ca.pem by --identity (or ISTHMUS_IDENTITY), "+
			"or say --insecure for a service that speaks plain text; isthmus context keeps that under a name; on Kubernetes, --context names one of your kubeconfig; %s", ErrUse, o.Service(), localAdvice)
	}
	if _, err := os.Stat(o.Identity); err != nil {
		return identity.Config{}, fmt.Errorf("identity: %w; name a directory with cert.pem, key.pem and ca.pem by --identity", err)
	}
	return identity.Config{Files: &identity.Files{
		Cert: filepath.Join(o.Identity, "cert.pem"),
		Key:  filepath.Join(o.Identity, "key.pem"),
		CA:   filepath.Join(o.Identity, "ca.pem"),
	}}, nil
}

// expectation tells whether a server is the one that is expected. No certificate of a sidecar
// is one of a resolver service, so no app can answer in its place.
func (o Options) expectation() (func(identity.ID) error, error) {
	if o.Cluster != "" && o.Expect != "" {
		return nil, fmt.Errorf("%w: --cluster and --server-identity exclude each other; keep one", ErrUse)
	}
	if o.Cluster != "" {
		if err := catalog.CheckCluster(o.Cluster); err != nil {
			return nil, fmt.Errorf("%w: --cluster %q: %w", ErrUse, o.Cluster, err)
		}
		want := identity.ServiceApp("", o.Cluster)
		return func(id identity.ID) error {
			if id.App == want {
				return nil
			}
			return fmt.Errorf("it is app %s; want %s, the resolver service of cluster %s (see --cluster)%s", id.App, want, o.Cluster, o.inContext())
		}, nil
	}
	pattern := cmp.Or(o.Expect, identity.SystemNamespace+"/isthmus-*")
	start, wildcard := strings.CutSuffix(pattern, "*")
	if !strings.Contains(start, "/") {
		return nil, fmt.Errorf("%w: --server-identity %q: want namespace/app-id, or one that ends in *", ErrUse, pattern)
	}
	return func(id identity.ID) error {
		name := id.App.String()
		_, service := identity.ServiceCluster(id.App.Namespace, id.App)
		if !wildcard && name == start || wildcard && service && strings.HasPrefix(name, start) {
			return nil
		}
		return fmt.Errorf("it is app %s; want %s (see --cluster and --server-identity)%s", name, pattern, o.inContext())
	}, nil
}

// ClusterName asks the service once which cluster it is of. It is an error where that is not
// the cluster that is wanted.
func (c *Conn) ClusterName(ctx context.Context) (string, error) {
	if c.cluster == "" {
		answer, err := v1alpha1.NewStatusClient(c).Status(ctx, &v1alpha1.StatusRequest{})
		if err != nil {
			return "", err
		}
		c.cluster = answer.GetCluster()
	}
	if want := c.options.Cluster; want != "" && c.cluster != want {
		return "", fmt.Errorf("the resolver service at %s is of cluster %s, and --cluster wants %s; it was asked nothing else", c.options.Service(), c.cluster, want)
	}
	return c.cluster, nil
}

// Explain is that of [Options].
func (c *Conn) Explain(err error) error { return c.options.Explain(err) }

// Explain makes of a failed call's error one that names the attempt and the cure.
func (o Options) Explain(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	switch s.Code() {
	case codes.Unavailable:
		ended := endedError{}
		switch had := errors.As(err, &ended); {
		case ended.answered:
			return errors.New(s.Message())
		case had:
			return fmt.Errorf("resolver service at %s was asked, and the connection ended before its answer: %s; %s", o.Service(), connectionError(s.Message()), ended.advice())
		}
		return fmt.Errorf("resolver service at %s not reached: %s; %s", o.Service(), connectionError(s.Message()), o.advice(s.Message()))
	case codes.DeadlineExceeded:
		if strings.HasPrefix(s.Message(), "store ") {
			break // the service's own word, such as that something was written and is not followed yet
		}
		return fmt.Errorf("resolver service at %s gave no answer in time, and may still do what it was asked; is it overloaded or behind a firewall? --timeout gives it longer", o.Service())
	case codes.Unimplemented:
		return fmt.Errorf("what answers at %s is no resolver service, or one of another version: %s; check --server", o.Service(), s.Message())
	case codes.ResourceExhausted:
		return fmt.Errorf("more than fits into one message: %s; name fewer objects at once", s.Message())
	case codes.PermissionDenied:
		return fmt.Errorf("refused: %s", s.Message())
	}
	if s.Code() == codes.Aborted {
		return conflict(s.Message())
	}
	return errors.New(s.Message())
}

// ErrConflict says that somebody else has changed an object since it was read.
var ErrConflict = errors.New("changed by somebody else in the meantime")

// conflict is an error that is ErrConflict and says so in the words of the service.
type conflict string

// Error is what the service said.
func (c conflict) Error() string { return string(c) }

// Is makes it ErrConflict.
func (c conflict) Is(target error) bool { return target == ErrConflict }

func (o Options) advice(message string) string {
	switch {
	case o.OnKubernetes() && strings.Contains(message, "orbidden"):
		return "this takes rights of the kubeconfig's user: " + rightsToConnect
	case o.OnKubernetes():
		return "does the pod run, and does its isthmus.yaml have listen.kubernetes? See kubectl logs -n " + o.Namespace() + " -l " + PodSelector
	case strings.Contains(message, "first record does not look like a TLS handshake"):
		return "it speaks plain text: say --insecure if that is meant"
	case strings.Contains(message, "looked like an HTTP/1.1 header"):
		return "it speaks HTTP, as listen.admin does: name the service's listen.resolver by --server or ISTHMUS_SERVER"
	case strings.Contains(message, "tls: unrecognized name"):
		return "a gateway listens there: name the service's listen.resolver by --server or ISTHMUS_SERVER"
	case strings.Contains(message, "refused: it is app"):
		return "check --server, or name the cluster that it should be of by --cluster, or its app by --server-identity"
	case strings.Contains(message, "authentication handshake failed"):
		return "check that --identity has a valid certificate, and that ca.pem is the root of the service's too"
	case strings.Contains(message, "permission denied") && o.Socket != "":
		return "the socket is for the service's own user and root: ask as one of those, with sudo for example"
	case o.Socket != "":
		return "is isthmus serve running? The log line \"resolver service is running\" has its socket, as operator"
	case o.Plain() && (strings.Contains(message, "server preface") || strings.Contains(message, "connection reset") || strings.Contains(message, "EOF")):
		return "it may want mTLS: name your certificate by --identity instead of --insecure"
	default:
		return "is isthmus serve running there? Name another address by --server or ISTHMUS_SERVER"
	}
}

// connectionError is the part of gRPC's message that says what happened.
func connectionError(message string) string {
	for _, wrapping := range []string{"last connection error: ", `connection error: desc = "`, "transport: Error while dialing: ", "transport: "} {
		if i := strings.LastIndex(message, wrapping); i >= 0 {
			message = message[i+len(wrapping):]
		}
	}
	return strings.ReplaceAll(strings.TrimSuffix(message, `"`), `\"`, `"`)
}
