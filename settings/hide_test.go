package settings

import (
	"strings"
	"testing"
)

const privateKey = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n-----END PRIVATE KEY-----\n"

// TestSecretsAreHidden wherever they stand, and what only looks like one at first stays.
func TestSecretsAreHidden(t *testing.T) {
	for text, want := range map[string]string{
		privateKey + "and more": "(hidden: a private key)\nand more",
		`{"key":"` + strings.ReplaceAll(privateKey, "\n", `\n`) + `"}`:                   `{"key":"(hidden: a private key)\n"}`,
		"-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEI":                                      "(hidden: a private key)",
		"https://anna:swordfish@etcd.example:2379/a":                                     "https://(hidden)@etcd.example:2379/a",
		"postgres://isthmus:s-w$ord%20fish@db/x":                                         "postgres://(hidden)@db/x",
		`dsn "anna:swordfish@tcp(db)/shop"`:                                              `dsn "(hidden)@tcp(db)/shop"`,
		"https://hooks.example/a?api=1&key=swordfish#x":                                  "https://hooks.example/a?api=(hidden)&key=(hidden)#x",
		"Authorization: Bearer abcdefgh.ijkl_mn-op":                                      "Authorization: Bearer (hidden)",
		"a token eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl of ann":            "a token (hidden: a token) of ann",
		`{"redisPassword": "swordfish", "other": 1}`:                                     `{"redisPassword": "(hidden)", "other": 1}`,
		"password=swordfish host=db":                                                     "password=(hidden) host=db",
		"client_secret: swordfish":                                                       "client_secret: (hidden)",
		"tokenFile: /var/run/secrets/token":                                              "tokenFile: /var/run/secrets/token",
		`"store.etcd.password.file": "/run/secrets/etcd"`:                                `"store.etcd.password.file": "/run/secrets/etcd"`,
		"https://etcd.example:2379/a and mail to anna@example.com":                       "https://etcd.example:2379/a and mail to anna@example.com",
		"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----":                   "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
		"spiffe://west.example/ns/shop/checkout may call orders.shop.isthmus.internal:1": "spiffe://west.example/ns/shop/checkout may call orders.shop.isthmus.internal:1",
	} {
		if got := Hide(text); got != want {
			t.Errorf("%s\nbecomes\n%s\nwant\n%s", text, got, want)
		}
	}
}

// FuzzHide holds that no text around a private key brings it back.
func FuzzHide(f *testing.F) {
	f.Add("", "")
	f.Add("-----BEGIN RSA PRIVATE KEY-----", "-----END")
	f.Add(`{"a":"`, `"}`)
	f.Add("password: ", "@https://")
	f.Fuzz(func(t *testing.T, before, after string) {
		if got := Hide(before + "\n" + privateKey + after); strings.Contains(got, "MC4CAQAw") {
			t.Errorf("%q", got)
		}
	})
}
