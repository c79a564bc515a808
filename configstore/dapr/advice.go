package dapr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	isthmus "github.com/isthmus-mesh/isthmus/internal/settings"
)

// tlsAdvice is about mistakes with TLS, in the words of each component's metadata.
var tlsAdvice = map[string]isthmus.Advice{
	kindRedis: {
		CA:     "Dapr's component takes no CA: name its file in SSL_CERT_FILE, or add it to the system's roots",
		Name:   "let redisHost be a name that the certificate has",
		Plain:  "the server speaks no TLS there: leave enableTLS out, or take its TLS port",
		Secure: "set enableTLS",
	},
	kindPostgres: {
		CA:   "add sslrootcert=<file with the server's authority> to connectionString",
		Name: "let the host in connectionString be a name that the certificate has",
	},
	kindKubernetes: {
		CA: "set certificate-authority of the cluster in the kubeconfig to the API server's",
	},
}

// advise adds what the store's operator can do about an error.
func advise(kind string, err error) error {
	if tls := tlsAdvice[kind].About(err); tls != "" {
		return fmt.Errorf("%w; %s", err, tls)
	}
	if code := codeOf(err); code == invalidPassword || code == invalidAuthorization {
		return fmt.Errorf("%w; look after the user and the password in connectionString, and the server's pg_hba.conf", err)
	}
	if kind != kindRedis {
		return err
	}
	says := func(text string) bool { return strings.Contains(err.Error(), text) }
	switch {
	case says("WRONGPASS "), says("NOAUTH "):
		return fmt.Errorf("%w; look after redisUsername and redisPassword", err)
	case says("NOPERM "):
		return fmt.Errorf("%w; ACL SETUSER gives it to the user of the component, as docs/reference/stores/dapr.md lists", err)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w; the server hung up: if it always does, see that enableTLS is as it has it", err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w; nothing was heard in time: see that the server runs, that nothing drops packets on the way, and that enableTLS is as it has it", err)
	}
	return err
}
