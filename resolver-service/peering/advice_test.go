package peering

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

func TestErrorsSayWhatToDo(t *testing.T) {
	for _, err := range []error{
		errors.New("authentication handshake failed: tls: first record does not look like a TLS handshake"),
		errors.New("authentication handshake failed: remote error: tls: unrecognized name"),
		errors.New("error reading server preface: EOF"),
		syscall.ECONNREFUSED, syscall.ENETUNREACH, syscall.EHOSTUNREACH,
		errors.New("dial tcp: lookup gw.east.example on 10.0.0.1:53: server misbehaving"),
	} {
		if got := advised(err); !errors.Is(got, err) || !strings.HasPrefix(got.Error(), err.Error()+"; ") {
			t.Errorf("%q became %q", err, got)
		}
	}
	other := errors.New("no answer within 3s")
	if got := advised(other); got != other {
		t.Errorf("%q became %q", other, got)
	}
}
