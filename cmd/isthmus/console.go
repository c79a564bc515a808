package main

import (
	"context"
	"fmt"
	"html"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console/login"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console/pages"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
)

func newConsole(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve pages that show a service, explain calls and try changes out",
		Long: `Serve pages on this machine's loopback until you end it. They ask the service as you, by the same
way as every other command, so they show and change what you may.

It prints a URL that works once. Whoever has opened it stays in until the command ends.`,
		Example: `  isthmus console
  isthmus console --context kind-west --open
  isthmus console --download`,
		Args: arguments(cobra.NoArgs),
	}
	c.flags(cmd, toRead)
	listen := cmd.Flags().String("listen", "127.0.0.1:0", "where to serve the pages, on loopback; port 0 is any free one")
	open := cmd.Flags().Bool("open", false, "open the URL in your browser")
	download := cmd.Flags().Bool("download", false, "write nothing: what was planned is downloaded, for a repository that objects are applied from")
	consoles := cmd.Flags().StringToString("console", nil, "console of another cluster, as cluster=https://…, which pages link to; can be given more than once")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !edge.OnLoopback(*listen) {
			return misused(fmt.Errorf("--listen %s is not on loopback, and whoever asks there asks as you; for a team there is listen.console of isthmus.yaml", *listen))
		}
		var cluster string
		err := c.ask(cmd, func(ctx context.Context, conn *client.Conn) (err error) {
			cluster, err = conn.ClusterName(ctx)
			return err
		})
		if err != nil {
			return err
		}
		options, err := c.options(cmd)
		if err != nil {
			return err
		}
		to := &reconnecting{options: options}
		defer to.close()
		log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
		shown, err := pages.New(pages.Options{Conn: to, Explain: to.explain, Flags: sameService(cmd), Download: *download, Consoles: *consoles, Log: log})
		if err != nil {
			return err
		}
		return serveConsole(cmd, *listen, cluster, shown, *open, log)
	}
	return cmd
}

// serveConsole serves pages to whoever has the URL that it prints.
func serveConsole(cmd *cobra.Command, at, cluster string, shown *pages.Console, open bool, log *slog.Logger) error {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return fmt.Errorf("--listen: %w; name another port", err)
	}
	defer l.Close()
	out := cmd.OutOrStdout()
	gate, err := login.NewOnce(login.OnceConfig{
		URL: "http://" + l.Addr().String(), Person: userName(), HowTo: "The command isthmus console prints the next one.",
		Used: func(next string) { show.Say(out, "the URL was used; the next browser takes %s\n", next) },
	}, log)
	if err != nil {
		return err
	}
	show.Say(out, "console of cluster %s: %s\nThe URL works once. Ctrl-C ends the console.\n", cluster, gate.URL())
	if open {
		done := openBrowser(cmd, gate.URL())
		defer done()
	}
	both, ctx := errgroup.WithContext(cmd.Context())
	both.Go(func() error { return shown.Run(ctx) })
	both.Go(func() error { return pages.Serve(ctx, l, gate.Handler(shown.Handler()), nil, log) })
	return both.Wait()
}

// userName is the user of this machine.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "you"
}

// openBrowser has the system open a URL, until done is called. Where it can't, the user still has
// the URL. Every user of the machine sees with what arguments a program runs, so it gets a file that
// leads to the URL.
func openBrowser(cmd *cobra.Command, url string) (done func()) {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	dir, err := os.MkdirTemp("", "isthmus-console-") // 0700
	if err == nil {
		path := filepath.Join(dir, "open.html")
		page := fmt.Sprintf(leadOn, html.EscapeString(url))
		if err = os.WriteFile(path, []byte(page), 0o600); err == nil {
			err = exec.CommandContext(cmd.Context(), program, path).Start()
		}
	}
	if err != nil {
		show.Say(cmd.ErrOrStderr(), "no browser was opened: %v; open the URL yourself\n", err)
	}
	return func() { _ = os.RemoveAll(dir) }
}

// leadOn is a page that leads to a URL.
const leadOn = `<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<title>Isthmus</title><meta http-equiv="refresh" content="0;url=%[1]s"><a href="%[1]s">To the console</a>
`

// sameService are the flags by which a command reaches the service that this one has reached, with a
// blank before each.
func sameService(cmd *cobra.Command) string {
	var b strings.Builder
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case slices.Contains([]string{"timeout", "listen", "open", "download", "console"}, f.Name):
		case f.Value.Type() == "bool":
			b.WriteString(" --" + f.Name)
		default:
			b.WriteString(" --" + f.Name + " " + f.Value.String())
		}
	})
	return b.String()
}
