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
		`{"key":"` + strings.ReplaceAll(privateKey, "\n", `\n`) + `"}`:        `{"key":"(hidden: a private key)\n"}`,
		"-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEI":                           "(hidden: a private key)",
		"https://anna:swordfish@etcd.example:2379/a":                          "https://(hidden)@etcd.example:2379/a",
		"postgres://isthmus:s-w$ord%20fish@db/x":                              "postgres://(hidden)@db/x",
		`dsn "anna:swordfish@tcp(db)/shop"`:                                   `dsn "(hidden)@tcp(db)/shop"`,
		"https://hooks.example/a?api=1&key=swordfish#x":                       "https://hooks.example/a?api=(hidden)&key=(hidden)#x",
		"Authorization: Bearer abcdefgh.ijkl_mn-op":                           "Authorization: Bearer (hidden)",
		"a token eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl of ann": "a token (hidden: a token) of ann",
		`{"redisPassword": "swordfish", "other": 1}`:                          `{"redisPassword": "(hidden)", "other": 1}`,
		"password=swordfish host=db":                                          "password=(hidden) host=db",
		"client_secret: swordfish":                                            "client_secret: (hidden)",
		// The kinds of names and of quotes.
		"AccountName=shop;AccountKey=c3dvcmRmaXNo+/==;EndpointSuffix=core": "AccountName=shop;AccountKey=(hidden);EndpointSuffix=core",
		"SharedAccessSignature=sv=2020&sig=swordfish":                      "SharedAccessSignature=(hidden)",
		"aws_access_key_id=AKIA1\naws_secret_access_key=sword/fish+":       "aws_access_key_id=AKIA1\naws_secret_access_key=(hidden)",
		"AWS_SESSION_TOKEN=swordfish":                                      "AWS_SESSION_TOKEN=(hidden)",
		"Server=db;Uid=anna;Pwd=swordfish;":                                "Server=db;Uid=anna;Pwd=(hidden);",
		"MYSQL_PWD=swordfish":                                              "MYSQL_PWD=(hidden)",
		"pwd=abc":                                                          "pwd=(hidden)",
		"passphrase: correct horse swordfish":                              "passphrase: (hidden)",
		"  passwd: correct horse swordfish\n  user: anna":                  "  passwd: (hidden)\n  user: anna",
		`password: "correct horse, swordfish" # of anna`:                   `password: "(hidden)" # of anna`,
		`password = 'correct horse'`:                                       `password = '(hidden)'`,
		`{"password":"sword \"fish\"","a":1}`:                              `{"password":"(hidden)","a":1}`,
		`msg="{\"password\":\"sword fish\",\"a\":1}"`:                      `msg="{\"password\":\"(hidden)\",\"a\":1}"`,
		"password: |-\n  sword fish\nuser: anna":                           "password: |-\n  (hidden)\nuser: anna",
		`:password => "swordfish"`:                                         `:password => "(hidden)"`,
		"X-Vault-Token: hvx.swordfish":                                     "X-Vault-Token: (hidden)",
		"dapr-api-token=swordfish":                                         "dapr-api-token=(hidden)",
		"api_key: swordfish":                                               "api_key: (hidden)",
		"client-key-data: LS0tLS1CRUdJTg==":                                "client-key-data: (hidden)",
		"isthmus serve --admin-token swordfish --port 1":                   "isthmus serve --admin-token (hidden) --port 1",
		"--password=swordfish":                                             "--password=(hidden)",
		"<password>swordfish</password>":                                   "<password>(hidden)</password>",
		"requirepass swordfish":                                            "requirepass (hidden)",
		"CREATE USER anna IDENTIFIED BY 'sword fish'":                      "CREATE USER anna IDENTIFIED BY '(hidden)'",
		// Headers.
		"Cookie: isthmus-session-8250=sword; b=fish\nHost: west": "Cookie: (hidden)\nHost: west",
		`{"Set-Cookie": "sid=swordfish; Path=/"}`:                `{"Set-Cookie": "(hidden)"}`,
		"Authorization: Basic YTpi":                              "Authorization: Basic (hidden)",
		"authorization: NTLM c3dvcmQ=":                           "authorization: NTLM (hidden)",
		"Proxy-Authorization: c3dvcmQ":                           "Proxy-Authorization: (hidden)",
		"got a bearer c3dvcmRmaXNo here":                         "got a bearer (hidden) here",
		// Users in URLs, escaped and not.
		"redis://:sword/fish@db:6379":                      "redis://(hidden)@db:6379",
		"postgres://anna:s/w?o#rd@db/x":                    "postgres://(hidden)@db/x",
		"amqp://anna:sw@rd@mq/shop":                        "amqp://(hidden)@mq/shop",
		"https://ghp_swordfish@git.example/a/b":            "https://(hidden)@git.example/a/b",
		"https://anna:swordfish@npm.example:4873/@scope/a": "https://(hidden)@npm.example:4873/@scope/a",
		"anna:sword/fish@tcp(db)/shop":                     "(hidden)@tcp(db)/shop",
		"dsn=anna:s:w@rd@tcp(db)/shop":                     "dsn=(hidden)@tcp(db)/shop",
		// Secrets that are known by their own form.
		"accept isthmus-link-1.AbC_d-9 now":         "accept (hidden: an invitation) now",
		"http://127.0.0.1:8250/enter?key=swordfish": "http://127.0.0.1:8250/enter?key=(hidden)",
		"by ghp_abcdefghijklmnop1234 of anna":       "by (hidden: a token) of anna",
		"hvs.abcdefghijklmnop1234":                  "(hidden: a token)",
		"AGE-SECRET-KEY-1QQQ":                       "(hidden: a private key)",
		"-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQOY\n-----END PGP PRIVATE KEY BLOCK-----": "(hidden: a private key)",
		// What stays.
		"token:":                                                                         "token:",
		"password:\n  file: /run/secrets/redis":                                          "password:\n  file: /run/secrets/redis",
		"secretKeyRef: {name: a, key: b}":                                                "secretKeyRef: {name: a, key: b}",
		"password: {env: REDIS}":                                                         "password: {env: REDIS}",
		"image: registry.example:5000/isthmus:v1@sha256:ab":                              "image: registry.example:5000/isthmus:v1@sha256:ab",
		"https://etcd.example:2379/a/@b and https://x/a@b":                               "https://etcd.example:2379/a/@b and https://x/a@b",
		"the author: anna, passes 3 of 4 tokens":                                         "the author: anna, passes 3 of 4 tokens",
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
