package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/internal/show"
	resolverservice "github.com/isthmus-mesh/isthmus/resolver-service"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway"
)

func newServe() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve -c FILE",
		Short: "Run the resolver service",
		Long: `Run the resolver service, with the parts that the configuration names: the resolver for
sidecars, DNS, the gateway for other clusters, and the admin pages.

It ends at the first SIGINT or SIGTERM once connections had time to finish, and at the
second at once. SIGHUP does nothing: certificates, tokens and objects are read again by
themselves, and a change of the configuration takes a restart.`,
		Example: `  isthmus serve -c isthmus.yaml
  isthmus serve -c isthmus.yaml --check`,
		Args: arguments(cobra.NoArgs),
	}
	file := cmd.Flags().StringP("config", "c", "isthmus.yaml", "configuration file")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	check := cmd.Flags().Bool("check", false, "only read the configuration and print its mistakes; the exit code is 1 then")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := resolverservice.Load(*file)
		if err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), show.Lines(err))
			return errReported
		}
		if *check {
			show.Say(cmd.OutOrStdout(), "%s: all good; the files, secrets and servers that it names are looked at when the service starts\n", *file)
			return nil
		}
		cfg.Version, cfg.Cores = programVersion(), runtime.GOMAXPROCS(0)
		runtime.GOMAXPROCS(processors(cfg))
		log := newLog(cmd.ErrOrStderr(), cfg)
		defer surviveHangup(log)()
		return resolverservice.Run(cmd.Context(), cfg, log)
	}
	return cmd
}

// processors is how many of Go's processors the service has. Parts that wait in the kernel
// keep theirs: each of the gateway's loops, and DNS one for each core. At least one must be
// left. Otherwise Go's monitor takes them away in each wait, which at 10,000 queries a second
// costs as much as a third of the answers.
func processors(cfg *resolverservice.Config) int {
	n := cfg.Cores
	if cfg.Listen.Gateway != "" {
		n += gateway.Loops()
	}
	if len(cfg.Listen.DNS) > 0 {
		n++
	}
	return n
}

// surviveHangup lets SIGHUP, by which many a service is told to read its configuration again,
// not end this one, which by default it would do at once and without a word.
func surviveHangup(log *slog.Logger) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for range hangups {
			log.Info("SIGHUP does nothing: certificates, tokens and objects are read again by themselves; to read isthmus.yaml again, restart the service")
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
	}
}

// newLog logs as the configuration says. Every line has the cluster's name.
func newLog(w io.Writer, cfg *resolverservice.Config) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Log.Level)) // was checked
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if cfg.Log.Format == "json" {
		handler = slog.NewJSONHandler(w, options)
	}
	return slog.New(handler).With("cluster", cfg.Cluster)
}
