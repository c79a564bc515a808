package nameresolution

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// explained is a gRPC error without gRPC's wrapping, and with what to do about it.
func explained(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	if a := advice(s.Code(), s.Message()); a != "" {
		return fmt.Errorf("%s: %s; %s", s.Code(), s.Message(), a)
	}
	return fmt.Errorf("%s: %s", s.Code(), s.Message())
}

// advice is what to do about a stream that could not be had, by what gRPC says of it;
// empty where that is enough.
func advice(code codes.Code, message string) string {
	says := func(text string) bool { return strings.Contains(message, text) }
	switch {
	case code == codes.Unimplemented, says("unexpected HTTP status code"):
		return "what answers there is no resolver service: the key resolver wants its listen.resolver"
	case code != codes.Unavailable:
		return ""
	case says("first record does not look like a TLS handshake"):
		return "it speaks plain text: the key resolver wants the service's listen.resolver, and that service needs an identity"
	case says("unrecognized name"):
		return "that is a gateway: the key resolver wants the service's listen.resolver"
	case says("refused: it is app"):
		return "check the keys resolver and cluster"
	case says("authentication handshake failed"):
		return "check that both sides' certificates are valid, below the same root"
	case says("server preface"):
		return "it may want mTLS: give the key identity files or sentry instead of insecure"
	case says("connection refused"), says("no such file"), says("no such host"):
		return "is isthmus serve running there? The key resolver wants its listen.resolver"
	}
	return ""
}
