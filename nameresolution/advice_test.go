package nameresolution

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The messages are gRPC's own, as mistakes in a configuration cause them.
func TestAnErrorSaysWhatToDo(t *testing.T) {
	const handshake = `connection error: desc = "transport: authentication handshake failed: `
	for _, c := range []struct {
		what, message string
		code          codes.Code
		want          string
	}{
		{"nobody listens", `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:7499: connect: connection refused"`, codes.Unavailable, "is isthmus serve running there?"},
		{"no socket there", `connection error: desc = "transport: Error while dialing: dial unix /run/x: connect: no such file or directory"`, codes.Unavailable, "is isthmus serve running there?"},
		{"the port of admin", handshake + `tls: first record does not look like a TLS handshake"`, codes.Unavailable, "it speaks plain text"},
		{"the port of the gateway", handshake + `remote error: tls: unrecognized name"`, codes.Unavailable, "that is a gateway"},
		{"another cluster", handshake + `identity: peer x refused: it is app isthmus-system/isthmus-west; want isthmus-system/isthmus-east"`, codes.Unavailable, "check the keys resolver and cluster"},
		{"another root", handshake + `x509svid: could not verify leaf certificate"`, codes.Unavailable, "below the same root"},
		{"plain text to one that wants mTLS", `connection error: desc = "error reading server preface: EOF"`, codes.Unavailable, "instead of insecure"},
		{"another server", "unknown service isthmus.v1alpha1.Resolver", codes.Unimplemented, "no resolver service"},
		{"the service's own reason", "app shop/checkout may not ask for shop/orders", codes.PermissionDenied, "may not ask for shop/orders"},
	} {
		got := explained(status.Error(c.code, c.message)).Error()
		if !strings.Contains(got, c.message) || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s\nwant %s", c.what, got, c.want)
		}
	}
	if err := errors.New("as it is"); explained(err) != err {
		t.Errorf("an error that is not gRPC's became %v", explained(err))
	}
}
