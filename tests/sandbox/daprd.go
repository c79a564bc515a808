package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Daprd is a running sidecar.
type Daprd struct {
	*Process
	App      catalog.App
	HTTP     string // addresses, host:port, of its HTTP API,
	GRPC     string // its gRPC API,
	Internal string // its server for other sidecars,
	Metrics  string // and its metrics
	Config   string // path of its Configuration, empty without one

	client *http.Client
	place  Place
}

// DaprdOptions say how to run a sidecar.
type DaprdOptions struct {
	Name          string // in messages and of the log; "daprd-<cluster>-<app-id>" by default
	Stock         bool   // without Isthmus in it
	Program       string // path of daprd, as of another release; that of [Binary] by default
	Internal      string // where other sidecars reach it, ip:port; a free port of loopback by default
	HTTPPort      int    // of its HTTP API; a free one by default
	GRPCPort      int    // of its gRPC API; a free one by default
	ResolvConf    string // content of the /etc/resolv.conf that it has for itself; see [Command]
	Secrets       string // see [Command]
	Cluster       string
	App           catalog.App
	AppAddress    string            // host:port of the app behind it; empty: none
	AppProtocol   string            // "http" by default
	Configuration string            // YAML of a Dapr Configuration; environment variables in it are expanded
	Sentry        *Sentry           // mTLS with it; nil: plain text
	Env           map[string]string // more of its environment
	Args          []string          // more of its arguments
}

// Daprd starts a sidecar and waits until it is healthy, which takes its app.
func (s *Sandbox) Daprd(ctx context.Context, o DaprdOptions) (*Daprd, error) {
	program := "daprd"
	if o.Stock {
		program = "daprd-stock"
	}
	binary, err := programOr(o.Program, program)
	if err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = "daprd-" + o.Cluster + "-" + o.App.ID
	}
	d := &Daprd{App: o.App, client: s.client, place: s.place}
	if o.Configuration != "" {
		if d.Config, err = s.file(o.Name+".yaml", []byte(o.Configuration)); err != nil {
			return nil, err
		}
	}
	resolvConf := ""
	if o.ResolvConf != "" {
		if resolvConf, err = s.file(o.Name+".resolv.conf", []byte(o.ResolvConf)); err != nil {
			return nil, err
		}
	}
	args, err := d.listen(o.Internal, o.HTTPPort, o.GRPCPort)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Name, err)
	}
	more, err := o.args()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Name, err)
	}
	if d.Config != "" {
		args = append(args, "--config", d.Config)
	}
	args = append(args, more...)
	d.Process, err = s.run(ctx, Command{
		Name: o.Name, Path: binary, LogDir: s.dir, ReadyURL: "http://" + d.HTTP + "/v1.0/healthz",
		Args: args, Env: o.env(), ResolvConf: resolvConf, Secrets: o.Secrets,
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// listen chooses ports and returns the arguments that say so.
func (d *Daprd) listen(at string, api, grpc int) ([]string, error) {
	var internal, metrics, freeAPI, freeGRPC int
	if err := freePorts(&freeAPI, &freeGRPC, &internal, &metrics); err != nil {
		return nil, err
	}
	api, grpc = cmp.Or(api, freeAPI), cmp.Or(grpc, freeGRPC)
	d.HTTP, d.GRPC, d.Internal, d.Metrics = loopback(api), loopback(grpc), loopback(internal), loopback(metrics)
	if at != "" {
		d.Internal = at
	}
	host, port, err := splitAddress(d.Internal)
	if err != nil {
		return nil, err
	}
	return []string{
		"--dapr-listen-addresses", "127.0.0.1",
		"--dapr-http-port", strconv.Itoa(api), "--dapr-grpc-port", strconv.Itoa(grpc),
		"--dapr-internal-grpc-listen-address", host, "--dapr-internal-grpc-port", port,
		"--metrics-listen-address", "127.0.0.1", "--metrics-port", strconv.Itoa(metrics),
	}, nil
}

func (o *DaprdOptions) args() ([]string, error) {
	args := []string{"--app-id", o.App.ID}
	if o.AppAddress != "" {
		host, port, err := splitAddress(o.AppAddress)
		if err != nil {
			return nil, err
		}
		protocol := o.AppProtocol
		if protocol == "" {
			protocol = "http"
		}
		args = append(args, "--app-channel-address", host, "--app-port", port, "--app-protocol", protocol)
	}
	if o.Sentry != nil {
		args = append(args, "--enable-mtls", "--sentry-address", o.Sentry.Address,
			"--control-plane-trust-domain", o.Sentry.TrustDomain)
	}
	return append(args, o.Args...), nil
}

func (o *DaprdOptions) env() []string {
	host := "127.0.0.1"
	if o.Internal != "" {
		host, _, _ = splitAddress(o.Internal) // was split before
	}
	env := []string{"NAMESPACE=" + o.App.Namespace, "DAPR_HOST_IP=" + host}
	if o.Sentry != nil {
		env = append(env, "DAPR_TRUST_ANCHORS="+string(o.Sentry.Anchors))
	}
	if o.Cluster != "" {
		env = append(env, "OTEL_RESOURCE_ATTRIBUTES=k8s.cluster.name="+o.Cluster,
			"OTEL_BSP_SCHEDULE_DELAY=200") // ms until spans leave; 5 s is long to wait for
	}
	for _, name := range slices.Sorted(maps.Keys(o.Env)) {
		env = append(env, name+"="+o.Env[name])
	}
	return env
}

// InvokeURL is the address of a method of another app, by this sidecar's HTTP API. id
// is an app-id, or "app-id.namespace".
func (d *Daprd) InvokeURL(id, method string) string {
	return "http://" + d.HTTP + "/v1.0/invoke/" + id + "/method/" + method
}

// Invoke calls a method of another [App] through this sidecar. header may be nil.
func (d *Daprd) Invoke(ctx context.Context, id, method string, header http.Header) (*Reply, error) {
	return d.call(ctx, http.MethodGet, d.InvokeURL(id, method), nil, header)
}

// Post is [Daprd.Invoke] with a body.
func (d *Daprd) Post(ctx context.Context, id, method, body string, header http.Header) (*Reply, error) {
	return d.call(ctx, http.MethodPost, d.InvokeURL(id, method), strings.NewReader(body), header)
}

// Chunked is [Daprd.Post] for a body of unknown length.
func (d *Daprd) Chunked(ctx context.Context, id, method, body string, header http.Header) (*Reply, error) {
	return d.call(ctx, http.MethodPost, d.InvokeURL(id, method), io.MultiReader(strings.NewReader(body)), header)
}

// ActorURL is where this sidecar takes a call of an actor, type/id.
func (d *Daprd) ActorURL(actor, method string) string {
	return "http://" + d.HTTP + "/v1.0/actors/" + actor + "/method/" + method
}

// CallActor calls an actor that an [App] hosts, type/id, through this sidecar.
func (d *Daprd) CallActor(ctx context.Context, actor, method string) (*Reply, error) {
	return d.call(ctx, http.MethodPost, d.ActorURL(actor, method), nil, nil)
}

func (d *Daprd) call(ctx context.Context, verb, url string, body io.Reader, header http.Header) (*Reply, error) {
	req, err := http.NewRequestWithContext(ctx, verb, url, body)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", url, err)
	}
	maps.Copy(req.Header, header)
	res, err := d.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", url, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", url, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, &InvokeError{URL: url, Status: res.StatusCode, Body: string(answer)}
	}
	reply := new(Reply)
	if err := json.Unmarshal(answer, reply); err != nil {
		return nil, fmt.Errorf("call %s: answer %q: %w", url, answer, err)
	}
	return reply, nil
}

// InvokeError is an answer of a sidecar that says a call failed.
type InvokeError struct {
	URL    string
	Status int
	Body   string // daprd's error, in JSON
}

// Error names the call and what came back.
func (e *InvokeError) Error() string {
	return fmt.Sprintf("call %s: status %d: %s", e.URL, e.Status, e.Body)
}
