package peering

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

func TestErrorsSayWhatToDo(t *testing.T) {
	const insecure = "this service has identity: insecure"
	lost := errors.New("authentication handshake failed: read tcp 203.0.113.7:15443: read: connection reset by peer")
	for _, c := range []struct {
		err                  error
		remedy, whenInsecure string // parts of them
	}{
		{errors.New("authentication handshake failed: tls: first record does not look like a TLS handshake"), "spec.gateways", "spec.gateways"},
		{errors.New("authentication handshake failed: remote error: tls: unrecognized name"), "domain", "domain"},
		{tlsAlert{errors.New("remote error: tls: bad certificate")}, "lacks the root of this one", ""},
		{tlsAlert{errors.New("remote error: tls: bad certificate")}, "a clock that differs", ""},
		{tlsAlert{errors.New("remote error: tls: unknown certificate authority")}, "lacks the root of this one", ""},
		{tlsAlert{errors.New("remote error: tls: certificate required")}, "lacks the root of this one", ""},
		{tlsAlert{errors.New("remote error: tls: expired certificate")}, "clocks", ""},
		{tlsAlert{errors.New("remote error: tls: internal error")}, "the gateway there has no table yet", ""},
		{errors.New("unknown service isthmus.v1alpha1.Peering"), "most often its listen.resolver", "listen.resolver"},
		{errors.New("error reading server preface: remote error: tls: bad certificate"), "lacks the root of this one", ""},
		{errors.New("error reading server preface: http2: frame too large"), "no gateway", insecure},
		{errHungUp, "lacks the root of this one", insecure},
		{errNeverHeard, "no gateway", "no gateway"},
		{errors.New("authentication handshake failed: EOF"), "no gateway", ""},
		{lost, "no gateway", ""},
		{syscall.ECONNREFUSED, "start the gateway", "start the gateway"},
		{syscall.ENETUNREACH, "routes", "routes"},
		{syscall.EHOSTUNREACH, "routes", "routes"},
		{errors.New("dial tcp: lookup gw.east.example on 10.0.0.1:53: server misbehaving"), "resolves names", "resolves names"},
	} {
		for want, got := range map[string]error{c.remedy: withRemedy(c.err, false), c.whenInsecure: withRemedy(c.err, true)} {
			if !errors.Is(got, c.err) || !strings.HasPrefix(got.Error(), c.err.Error()+"; ") || !strings.Contains(got.Error(), want) {
				t.Errorf("%q became %q; want %q", c.err, got, want)
			}
		}
		if got := withRemedy(c.err, false); strings.Contains(got.Error(), insecure) {
			t.Errorf("with an identity: %q", got)
		}
	}
	other := errors.New("no answer within 3s")
	if got := withRemedy(other, false); got != other {
		t.Errorf("%q became %q", other, got)
	}
}
