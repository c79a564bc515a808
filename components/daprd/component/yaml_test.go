package component

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	nr "github.com/dapr/components-contrib/nameresolution"
	"github.com/dapr/components-contrib/nameresolution/mdns"
	kubernetes "github.com/dapr/dapr/pkg/apis/configuration/v1alpha1"
	registry "github.com/dapr/dapr/pkg/components/nameresolution"
	"github.com/dapr/dapr/pkg/config"
	"github.com/dapr/kit/logger"
	"go.opentelemetry.io/otel/trace"
	sigs "sigs.k8s.io/yaml"

	"github.com/isthmus-mesh/isthmus/components/dial"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// daprd accepts the files that users copy, ignores no key in them, and the component starts with
// them.
func TestConfigurationsThatAUserCopies(t *testing.T) {
	files, err := filepath.Glob("../../*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("found %q (%v), want the files in components/", files, err)
	}
	for _, file := range files {
		if file, err = filepath.Abs(file); err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var resource kubernetes.Configuration
			if err := sigs.UnmarshalStrict(text, &resource); err != nil {
				t.Fatal(err)
			}
			loaded, err := config.LoadStandaloneConfiguration(file)
			if err != nil {
				t.Fatal(err)
			}
			starts(t, loaded.Spec.NameResolutionSpec)
			starts(t, asFromKubernetes(t, &resource))
		})
	}
}

// asFromKubernetes returns a Configuration as daprd gets it from Dapr's operator.
func asFromKubernetes(t *testing.T, resource *kubernetes.Configuration) *config.NameResolutionSpec {
	t.Helper()
	sent, err := json.Marshal(resource)
	if err != nil {
		t.Fatal(err)
	}
	loaded := config.LoadDefaultConfiguration()
	if err := json.Unmarshal(sent, loaded); err != nil {
		t.Fatal(err)
	}
	return loaded.Spec.NameResolutionSpec
}

// starts starts the component with a configuration, as daprd does.
func starts(t *testing.T, spec *config.NameResolutionSpec) {
	t.Helper()
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DAPR_TRUST_ANCHORS", string(authority.Anchors()))
	t.Chdir(t.TempDir())
	if err := os.Mkdir("config", 0o755); err != nil {
		t.Fatal(err)
	}
	reg := registry.NewRegistry()
	reg.Logger = logger.NewLogger(t.Name())
	reg.Logger.SetOutput(t.Output())
	reg.RegisterComponent(mdns.NewResolver, "mdns")
	New(quiet, dial.New(quiet, trace.SpanFromContext, Answer)).Register(reg)
	r, err := reg.Create(spec.Component, spec.Version, spec.Component)
	if err != nil {
		t.Fatal(err)
	}
	md := nr.Metadata{Configuration: spec.Configuration, Instance: nr.Instance{
		AppID: "checkout", Namespace: "shop", Address: "127.0.0.1", DaprInternalPort: 50002, DaprHTTPPort: 3500,
	}}
	if err := r.Init(t.Context(), md); err != nil {
		t.Fatal(err)
	}
	awaitReceivers(t)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// awaitReceivers waits until every goroutine that an mDNS server began reads its socket. The
// library counts these goroutines as they begin, and a server that is closed sooner waits for
// them at the same time: a race that is the library's and that costs nothing.
func awaitReceivers(t *testing.T) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	serverstest.Await(t, "mDNS servers to read their sockets", func() bool {
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			own, _, _ := strings.Cut(stack, "created by")
			if strings.Contains(own, "zeroconf.(*Server)") && !strings.Contains(own, "poll.runtime_pollWait") && !strings.Contains(own, "probe") {
				return false
			}
		}
		return true
	})
}
