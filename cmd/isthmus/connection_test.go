package main

import (
	"context"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
)

func TestWhoInterruptsACommandIsToldHowFarItMayHaveCome(t *testing.T) {
	for _, c := range []struct{ when, want string }{
		{"before", "interrupted before the resolver service at 127.0.0.1:1 was asked"},
		{"meanwhile", "interrupted while the resolver service at 127.0.0.1:1 was asked; what it was told to write"},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		cmd, conn := &cobra.Command{}, &connection{}
		conn.flags(cmd, toWrite)
		conn.Server, conn.Insecure = "127.0.0.1:1", true
		cmd.SetContext(ctx)
		if c.when == "before" {
			interrupt()
		}
		err := conn.ask(cmd, func(ctx context.Context, _ *client.Conn) error {
			interrupt()
			return ctx.Err()
		})
		interrupt()
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v; want %s …", c.when, err, c.want)
		}
	}
}
