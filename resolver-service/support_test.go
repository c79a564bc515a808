package resolverservice

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/authz/trustbundle"
)

// plant writes a text into everything in a configuration that takes one, and makes what may be
// left out.
func plant(v reflect.Value, text string) {
	switch {
	case v.Kind() == reflect.Pointer:
		if v.CanSet() {
			v.Set(reflect.New(v.Type().Elem()))
			plant(v.Elem(), text)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Tag.Get("yaml"); name != "" && name != "-" {
				plant(v.Field(i), text)
			}
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		plant(v.Index(0), text)
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case v.Kind() == reflect.String:
		v.SetString(text)
	}
}

// TestNoSecretOfTheConfigurationIsInABundle, whichever key it stands at.
func TestNoSecretOfTheConfigurationIsInABundle(t *testing.T) {
	var cfg Config
	for _, text := range []string{
		"https://anna:swordfish@host.example:2379/a?key=swordfish", "user:swordfish@tcp(host)", "Bearer swordfish-swordfish",
		"-----BEGIN PRIVATE KEY-----\nswordfish\n-----END PRIVATE KEY-----\n", "password=swordfish",
	} {
		plant(reflect.ValueOf(&cfg).Elem(), text)
		values := strict.Values(&cfg, settings.Hide)
		shown, err := json.Marshal(values)
		if err != nil || strings.Contains(string(shown), "swordfish") || len(values) < 100 {
			t.Errorf("%d values, %v: %s", len(values), err, shown)
		}
	}
	cfg = Config{Cluster: "west", Identity: Identity{Identity: trustbundle.Identity{Config: identity.Config{Sentry: &identity.Sentry{Address: "sentry:50001", Token: "swordfish"}}}}}
	cfg.Gateway.DrainTimeout, cfg.Operators = 5*time.Second, []string{"a/b", "c/d"}
	values := strict.Values(&cfg, settings.Hide)
	for path, want := range map[string]any{
		"cluster": "west", "identity.sentry.address": "sentry:50001", "gateway.drainTimeout": "5s", "operators[1]": "c/d",
	} {
		if values[path] != want {
			t.Errorf("%s is %v, want %v", path, values[path], want)
		}
	}
	if token, ok := values["identity.sentry.token"].(string); !ok || token == "swordfish" {
		t.Errorf("the token is %v", values["identity.sentry.token"])
	}
}
