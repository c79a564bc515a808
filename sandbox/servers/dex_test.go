package servers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/sandbox"
)

// TestDexSignsPeopleIn by its form, and tells an application their mail address and groups.
func TestDexSignsPeopleIn(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	const back = "https://127.0.0.1:1/callback"
	d, err := StartDex(ctx, t.TempDir(), DexOptions{
		Clients: []DexClient{{ID: "console", Secret: "whisper", Redirects: []string{back}}, {ID: "public", Redirects: []string{back}}},
		People:  []DexPerson{{Email: "ada@example.com", Password: "engine", Groups: []string{"operators", "shop"}}},
	})
	if errors.Is(err, sandbox.ErrNoBinary) && testing.Short() {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Kill() }()
	var discovered struct {
		Authorize string   `json:"authorization_endpoint"`
		Token     string   `json:"token_endpoint"`
		Methods   []string `json:"code_challenge_methods_supported"`
	}
	v := visitor{t, d.Client()}
	v.json(v.get(d.Issuer()+"/.well-known/openid-configuration"), &discovered)
	if !slices.Contains(discovered.Methods, "S256") {
		t.Errorf("discovery: %+v; want PKCE", discovered)
	}
	for client, secret := range map[string]string{"console": "whisper", "public": ""} {
		v := visitor{t, d.Client()}
		v.client.Jar, _ = cookiejar.New(nil)
		v.client.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
			if strings.HasPrefix(r.URL.String(), back) {
				return http.ErrUseLastResponse
			}
			return nil
		}
		const verifier, challenge = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM" // of RFC 7636
		form := v.get(discovered.Authorize + "?" + url.Values{
			"client_id": {client}, "redirect_uri": {back}, "response_type": {"code"}, "scope": {"openid email groups"},
			"state": {"s"}, "nonce": {"n"}, "code_challenge": {challenge}, "code_challenge_method": {"S256"},
		}.Encode())
		action := regexp.MustCompile(`<form method="post" action="([^"]+)"`).FindStringSubmatch(v.text(form))
		if action == nil {
			t.Fatalf("%s shows no form", form.Request.URL)
		}
		post, _ := form.Request.URL.Parse(html.UnescapeString(action[1]))
		if refused := v.text(v.post(post.String(), url.Values{"login": {"ada@example.com"}, "password": {"wrong"}})); !strings.Contains(refused, "Invalid") {
			t.Errorf("a wrong password leads to %s", refused)
		}
		answer, err := v.post(post.String(), url.Values{"login": {"ada@example.com"}, "password": {"engine"}}).Location()
		if err != nil || answer.Query().Get("state") != "s" {
			t.Fatalf("the form leads to %v, %v; its log ends:\n%s", answer, err, d.process.Tail(5))
		}
		var tokens struct {
			ID string `json:"id_token"`
		}
		v.json(v.post(discovered.Token, url.Values{
			"grant_type": {"authorization_code"}, "code": answer.Query()["code"], "redirect_uri": {back}, "client_id": {client}, "client_secret": {secret}, "code_verifier": {verifier},
		}), &tokens)
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
		if claims.Issuer != d.Issuer() || claims.Audience != client || claims.Nonce != "n" || claims.Email != "ada@example.com" || !slices.Equal(claims.Groups, []string{"operators", "shop"}) {
			t.Errorf("claims %+v", claims)
		}
		v.client.CloseIdleConnections()
	}
	v.client.CloseIdleConnections()
}

// visitor is somebody with a browser, almost.
type visitor struct {
	t      *testing.T
	client *http.Client
}

func (v visitor) get(url string) *http.Response {
	v.t.Helper()
	res, err := v.client.Get(url)
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { res.Body.Close() })
	return res
}

func (v visitor) post(url string, form url.Values) *http.Response {
	v.t.Helper()
	res, err := v.client.PostForm(url, form)
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { res.Body.Close() })
	return res
}

func (v visitor) text(res *http.Response) string {
	v.t.Helper()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return string(text)
}

func (v visitor) json(res *http.Response, into any) {
	v.t.Helper()
	if text := v.text(res); res.StatusCode != http.StatusOK || json.Unmarshal([]byte(text), into) != nil {
		v.t.Fatalf("%s: %s: %s", res.Request.URL, res.Status, text)
	}
}
