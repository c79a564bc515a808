package servers

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// ask sends one command of Redis, inline, and returns what comes.
func ask(t *testing.T, address, command string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 1000)
	n, err := conn.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer[:n])
}

func TestRedisKeepsWhatItWasGivenThroughAKill(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	r, err := StartRedis(ctx, t.TempDir(), RedisOptions{})
	programstest.OrSkip(t, err)
	defer func() { _ = r.Kill() }()
	ask(t, r.Addr(), "SET key value")
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := r.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, r.Addr(), "GET key"); got != "$5\r\nvalue\r\n" {
		t.Errorf("after a kill: %q; want the value", got)
	}
	if err := r.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestPostgresStartsAgainAfterAKill(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	p, err := StartPostgres(ctx, t.TempDir(), PostgresOptions{})
	programstest.OrSkip(t, err)
	defer func() { _ = p.Kill() }()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if !p.answers() {
		t.Error("the server does not answer")
	}
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}
