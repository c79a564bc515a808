package conformance

import (
	"context"
	"testing"

	nr "github.com/dapr/components-contrib/nameresolution"
)

var initChecks = []check{
	{"Init", "Maps", "takes a configuration with any kind of map that daprd's decoders make", "", checkMaps},
	{"Init", "Invalid", "refuses a configuration with a mistake, and does not panic", "", checkInvalid},
	{"Init", "Strict", "refuses a key that it does not know, such as one that is misspelt", Strict, checkStrict},
	{"Init", "Instance", "refuses to register a sidecar without app-id, address or port", "", checkInstance},
	{"Init", "Ended", "returns at once when its context has ended", "", checkInitEnded},
}

// initialised calls Init of a new resolver, closes it, and returns the error.
func (w *world) initialised(t *testing.T, ctx context.Context, md nr.Metadata) (err error) {
	t.Helper()
	r := w.newResolver()
	bounded(t, w.limit, "Init", func() { err = r.Init(ctx, md) })
	if err == nil {
		bounded(t, w.limit, "Close", func() { _ = r.Close() })
	}
	return err
}

func checkMaps(t *testing.T, w *world) {
	if _, ok := w.configuration.(map[string]any); !ok {
		t.Skip("the resolver is not configured by a map")
	}
	for what, configuration := range map[string]any{
		"map[string]any": w.configuration,
		"map[any]any":    withAnyKeys(w.configuration),
	} {
		i := w.instance(w.app("configured"))
		i.DaprHTTPPort = serveHealth(t, i.Address)
		if err := w.initialised(t, t.Context(), nr.Metadata{Instance: i, Configuration: configuration}); err != nil {
			t.Errorf("Init with a %s: %v", what, err)
		}
	}
}

// withAnyKeys is a configuration as decoders of YAML make it.
func withAnyKeys(v any) any {
	switch v := v.(type) {
	case map[string]any:
		made := make(map[any]any, len(v))
		for key, value := range v {
			made[key] = withAnyKeys(value)
		}
		return made
	case []any:
		made := make([]any, len(v))
		for i := range v {
			made[i] = withAnyKeys(v[i])
		}
		return made
	}
	return v
}

func checkInvalid(t *testing.T, w *world) {
	if len(w.Invalid) == 0 {
		t.Skip("Setup.Invalid is empty: name configurations that Init must refuse, if there are any")
	}
	for what, configuration := range w.Invalid {
		i := w.instance(w.app("invalid"))
		i.DaprHTTPPort = 3500
		if err := w.initialised(t, t.Context(), nr.Metadata{Instance: i, Configuration: configuration}); err == nil {
			t.Errorf("Init succeeds with %s: %v", what, configuration)
		}
	}
}

func checkStrict(t *testing.T, w *world) {
	configuration := map[string]any{"noSuchKey": "value"}
	if known, ok := w.configuration.(map[string]any); ok {
		for key, value := range known {
			configuration[key] = value
		}
	}
	i := w.instance(w.app("strict"))
	i.DaprHTTPPort = 3500
	if err := w.initialised(t, t.Context(), nr.Metadata{Instance: i, Configuration: configuration}); err == nil {
		t.Error("Init succeeds with the key noSuchKey")
	}
}

func checkInstance(t *testing.T, w *world) {
	if w.Register != nil {
		t.Skip("the resolver registers nothing")
	}
	for what, without := range map[string]func(*nr.Instance){
		"app-id":  func(i *nr.Instance) { i.AppID = "" },
		"address": func(i *nr.Instance) { i.Address = "" },
		"port":    func(i *nr.Instance) { i.DaprInternalPort = 0 },
	} {
		i := w.instance(w.app("incomplete"))
		i.DaprHTTPPort = 3500
		without(&i)
		if err := w.initialised(t, t.Context(), w.metadata(i)); err == nil {
			t.Errorf("Init succeeds for a sidecar without %s", what)
		}
	}
}

func checkInitEnded(t *testing.T, w *world) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	i := w.instance(w.app("ended"))
	i.DaprHTTPPort = serveHealth(t, i.Address)
	_ = w.initialised(t, ctx, w.metadata(i)) // which must not hang
}
