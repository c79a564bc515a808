package dapr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// An error of a server is told with what its operator can do, in the words of the component.
func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		kind string
		err  error
		want string
	}{
		{kindRedis, errors.New("WRONGPASS invalid username-password pair or user is disabled."), "redisPassword"},
		{kindRedis, errors.New("NOAUTH Authentication required."), "redisUsername"},
		{kindRedis, errors.New("NOPERM this user has no permissions to run the 'eval' command"), "ACL SETUSER"},
		{kindRedis, errors.New("tls: failed to verify certificate: x509: certificate signed by unknown authority"), "SSL_CERT_FILE"},
		{kindRedis, io.EOF, "enableTLS"},
		{kindRedis, fmt.Errorf("hello: %w", context.DeadlineExceeded), "enableTLS"},
		{kindPostgres, &pgconn.PgError{Code: invalidPassword}, "connectionString"},
		{kindPostgres, errors.New("tls error: x509: certificate signed by unknown authority"), "sslrootcert"},
		{kindKubernetes, errors.New("x509: certificate signed by unknown authority"), "certificate-authority"},
		{kindRedis, errors.New("connection refused"), ""},
		{kindPostgres, io.EOF, ""},
		{kindAzure, errors.New("x509: certificate signed by unknown authority"), ""},
	} {
		got := advise(c.kind, c.err)
		added := strings.TrimPrefix(got.Error(), c.err.Error())
		if !errors.Is(got, c.err) || !strings.Contains(added, c.want) || (c.want == "") != (added == "") {
			t.Errorf("%s: %v, want advice with %q", c.kind, got, c.want)
		}
	}
}
