package identity_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

func TestConfigCheck(t *testing.T) {
	anchors := string(identitytest.NewCA(t).PEM())
	files := `files: {cert: a, key: b, ca: c}`
	tests := []struct {
		name, yaml, want string
	}{
		{"files", files, ""},
		{"insecure", `insecure: true`, ""},
		{"sentry with a file of anchors", `sentry: {address: "127.0.0.1:50001", trustAnchorsFile: ca.crt}`, ""},
		{"sentry with anchors", fmt.Sprintf("sentry: {address: 'sentry:443', trustAnchors: %q}", anchors), ""},
		{"nothing", `{}`, "nothing configured; write one of files, sentry and insecure: true"},
		{"insecure in so many words only", `insecure: false`, "nothing configured"},
		{"two", files + "\ninsecure: true", "files and insecure exclude each other"},
		{"three", files + "\ninsecure: true\nsentry: {address: 'a:1', trustAnchorsFile: b}", "files and sentry and insecure exclude each other"},
		{"a file missing", `files: {cert: a, ca: c}`, "files: key missing"},
		{"no file", `files: {}`, "files: cert and key and ca missing"},
		{"sentry without address", `sentry: {trustAnchorsFile: ca.crt}`, "sentry.address: is missing"},
		{"sentry without port", `sentry: {address: sentry, trustAnchorsFile: ca.crt}`, `address: "sentry" is no address; write host:port`},
		{"sentry without anchors", `sentry: {address: "127.0.0.1:50001"}`, "trustAnchors: is missing"},
		{"anchors twice", fmt.Sprintf("sentry: {address: 'a:1', trustAnchorsFile: b, trustAnchors: %q}", anchors), "exclude each other"},
		{"anchors that are a path", `sentry: {address: "a:1", trustAnchors: /etc/ca.crt}`, "trustAnchors: not PEM"},
		{"anchors cut short", fmt.Sprintf("sentry: {address: 'a:1', trustAnchors: %q}", anchors[:len(anchors)/2]), "trustAnchors: not PEM, or cut short"},
		{"token twice", `sentry: {address: "a:1", trustAnchorsFile: b, token: x, tokenFile: y}`, "token and tokenFile exclude each other"},
		{"a trust domain that is none", `sentry: {address: "a:1", trustAnchorsFile: b, trustDomain: "Local Host"}`, `trustDomain "Local Host"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("DAPR_TRUST_ANCHORS", "")
			cfg := decode(t, tt.yaml)
			wantError(t, "Check", cfg.Check(), tt.want)
			_, err := identity.New(cfg, checkout, slog.New(slog.DiscardHandler))
			wantError(t, "New", err, tt.want)
		})
	}
}

// Values in daprd's environment need not be configured again.
func TestSentryTakesWhatDaprdTakes(t *testing.T) {
	t.Setenv("DAPR_TRUST_ANCHORS", string(identitytest.NewCA(t).PEM()))
	if err := decode(t, `sentry: {address: "127.0.0.1:50001"}`).Check(); err != nil {
		t.Error(err)
	}
	t.Setenv("DAPR_TRUST_ANCHORS", "nonsense")
	wantError(t, "Check", decode(t, `sentry: {address: "127.0.0.1:50001"}`).Check(), "trustAnchors: not PEM")
	_, err := identity.New(decode(t, `sentry: {address: "a:1", trustAnchorsFile: b}`), catalog.App{}, slog.New(slog.DiscardHandler))
	wantError(t, "New without an app", err, "namespace is empty")
}

// decode reads a configuration as YAML, as the service does, and as untyped values
// that go through JSON, as the Dapr component's metadata does.
func decode(t *testing.T, text string) identity.Config {
	t.Helper()
	var cfg, again identity.Config
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&cfg); err != nil {
		t.Fatal(err)
	}
	var metadata map[string]any
	if err := yaml.Unmarshal([]byte(text), &metadata); err != nil {
		t.Fatal(err)
	}
	untyped, err := json.Marshal(metadata)
	if err != nil {
		t.Fatal(err)
	}
	strict := json.NewDecoder(bytes.NewReader(untyped))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&again); err != nil {
		t.Fatal(err)
	}
	if a, b := fmt.Sprintf("%+v %+v", cfg.Files, cfg.Sentry), fmt.Sprintf("%+v %+v", again.Files, again.Sentry); a != b || cfg.Insecure != again.Insecure {
		t.Fatalf("from YAML %s, from metadata %s", a, b)
	}
	return cfg
}

func TestTokenIsNeverPrinted(t *testing.T) {
	cfg := decode(t, `sentry: {address: "a:1", token: hunter2}`)
	if cfg.Sentry.Token != "hunter2" {
		t.Fatal("token was not decoded")
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "sentry", *cfg.Sentry, "token", cfg.Sentry.Token)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "sentry", *cfg.Sentry, "token", cfg.Sentry.Token)
	asYAML, err := yaml.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	printed := log.String() + string(asYAML) + string(asJSON) + fmt.Sprintf("%v %+v %#v %s %q %x", *cfg.Sentry, *cfg.Sentry, *cfg.Sentry, cfg.Sentry.Token, cfg.Sentry.Token, cfg.Sentry.Token)
	if strings.Contains(printed, "hunter2") || strings.Contains(printed, fmt.Sprintf("%x", "hunter2")) {
		t.Errorf("the token was printed: %s", printed)
	}
}
