package settings

import (
	"fmt"
	"strings"
)

// Advice is a cure for the mistakes that people make with TLS. It names the settings of a store.
type Advice struct {
	CA     string // where the server's authority is unknown: such as "set tls.ca to the …"
	Name   string // where the certificate is for another name
	Plain  string // where we speak TLS, and the server does not
	Secure string // where the server speaks TLS, and we do not
}

// mistakes is how clients tell them. It goes by text, since gRPC and go-redis keep nothing
// else of the error of a handshake; the text is that of crypto/x509, crypto/tls and net/http.
var mistakes = []struct {
	text   string
	advice func(Advice) string
}{
	{"certificate signed by unknown authority", func(a Advice) string { return a.CA }},
	{"certificate is not trusted", func(a Advice) string { return a.CA }}, // macOS
	{"certificate is valid for", func(a Advice) string { return a.Name }},
	{"certificate is not valid for", func(a Advice) string { return a.Name }},
	{"cannot validate certificate for", func(a Advice) string { return a.Name }},
	{"server gave HTTP response to HTTPS client", func(a Advice) string { return a.Plain }},
	{"first record does not look like a TLS handshake", func(a Advice) string { return a.Plain }},
	{"authentication handshake failed: EOF", func(a Advice) string { return a.Plain }},
	{"sent an HTTP request to an HTTPS server", func(a Advice) string { return a.Secure }},
	{"error reading server preface: EOF", func(a Advice) string { return a.Secure }},
	{"error reading server preface: read tcp", func(a Advice) string { return a.Secure }},
}

// To adds the advice to an error of a client, where it is about such a mistake.
func (a Advice) To(err error) error {
	if err == nil {
		return nil
	}
	if advice := a.About(err); advice != "" {
		return fmt.Errorf("%w; %s", err, advice)
	}
	return err
}

// About is the advice itself, empty where there is none to give.
func (a Advice) About(err error) string {
	for _, m := range mistakes {
		if strings.Contains(err.Error(), m.text) {
			return m.advice(a)
		}
	}
	return ""
}
