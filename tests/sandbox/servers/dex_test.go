package servers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// TestDexSignsPeopleIn by its form, and tells an application their mail address and groups.
func TestDexSignsPeopleIn(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	const back = "https://127.0.0.1:1/callback"
	ada := DexPerson{Email: "ada@example.com", Password: "engine", Groups: []string{"operators", "shop"}}
	d, err := StartDex(ctx, t.TempDir(), DexOptions{
		Clients: []DexClient{{ID: "console", Secret: "whisper", Redirects: []string{back}}, {ID: "public", Redirects: []string{back}}},
		People:  []DexPerson{ada},
	})
	programstest.OrSkip(t, err)
	defer func() { _ = d.Kill() }()
	client := d.Client()
	defer client.CloseIdleConnections()
	var discovered struct {
		Authorize string   `json:"authorization_endpoint"`
		Token     string   `json:"token_endpoint"`
		Methods   []string `json:"code_challenge_methods_supported"`
	}
	decode(t, &discovered)(client.Get(d.Issuer() + "/.well-known/openid-configuration"))
	if !slices.Contains(discovered.Methods, "S256") {
		t.Errorf("discovery: %+v; want PKCE", discovered)
	}
	for id, secret := range map[string]string{"console": "whisper", "public": ""} {
		const verifier, challenge = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM" // of RFC 7636
		authorize := discovered.Authorize + "?" + url.Values{
			"client_id": {id}, "redirect_uri": {back}, "response_type": {"code"}, "scope": {"openid email groups"},
			"state": {"s"}, "nonce": {"n"}, "code_challenge": {challenge}, "code_challenge_method": {"S256"},
		}.Encode()
		if to, err := SignIn(client, authorize, DexPerson{Email: ada.Email, Password: "wrong"}); !errors.Is(err, ErrNotSignedIn) || !strings.Contains(err.Error(), "Invalid") {
			t.Errorf("a wrong password leads to %v, %v", to, err)
		}
		to, err := SignIn(client, authorize, ada)
		if err != nil || to.Query().Get("state") != "s" {
			t.Fatalf("the form leads to %v, %v; its log ends:\n%s", to, err, d.process.Tail(5))
		}
		var tokens struct {
			ID string `json:"id_token"`
		}
		decode(t, &tokens)(client.PostForm(discovered.Token, url.Values{
			"grant_type": {"authorization_code"}, "code": to.Query()["code"], "redirect_uri": {back}, "client_id": {id}, "client_secret": {secret}, "code_verifier": {verifier},
		}))
		var claims struct {
			Issuer   string `json:"iss"`
			Audience string `json:"aud"`
			Nonce    string
			Email    string
			Groups   []string
		}
		if payload, err := base64.RawURLEncoding.DecodeString(strings.Split(tokens.ID+"..", ".")[1]); err != nil || json.Unmarshal(payload, &claims) != nil {
			t.Fatalf("no ID token: %q, %v", tokens.ID, err)
		}
		if claims.Issuer != d.Issuer() || claims.Audience != id || claims.Nonce != "n" || claims.Email != ada.Email || !slices.Equal(claims.Groups, ada.Groups) {
			t.Errorf("claims %+v", claims)
		}
	}
}

// decode reads an answer that must be well and in JSON.
func decode(t *testing.T, into any) func(res *http.Response, err error) {
	return func(res *http.Response, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if _, text, err := read(res, nil); err != nil || res.StatusCode != http.StatusOK || json.Unmarshal([]byte(text), into) != nil {
			t.Fatalf("%s: %s, %v: %s", res.Request.URL, res.Status, err, text)
		}
	}
}
