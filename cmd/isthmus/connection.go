package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// connection has the flags of every command that asks a service.
type connection struct {
	client.Options // as flags say; for what they leave out see options
	context        string
}

// How long commands wait for the answer, where --timeout does not say. One that writes has
// more time: many objects in parts take a while, and one that is cut off leaves its user
// not knowing how far it has come.
const (
	toRead  = 10 * time.Second
	toWrite = time.Minute
)

// flags adds the flags to a command. All commands share the connection, so that none of
// its fields may have a default that is not the same for each.
func (c *connection) flags(cmd *cobra.Command, timeout time.Duration) {
	defer markNew(cmd.Flags())()
	c.serviceFlags(cmd)
	cmd.Flags().StringVar(&c.context, "context", "",
		"named service to ask, see isthmus context, or else a context of your kubeconfig (env ISTHMUS_CONTEXT)")
	_ = cmd.RegisterFlagCompletionFunc("context", c.completeContexts)
	cmd.Flags().Duration("timeout", timeout, "how long to wait for the answer")
}

// serviceFlags adds the flags that a context has, too.
func (c *connection) serviceFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.Server, "server", "",
		"resolver service, host:port or unix:///path (env ISTHMUS_SERVER; default "+defaultServer+")")
	f.StringVar(&c.Socket, "socket", "",
		"the service's operator socket on this machine, which needs no certificate (env ISTHMUS_SOCKET); see listen.operator")
	f.StringVar(&c.Kubeconfig, "kubeconfig", "",
		"file by which to reach the service in Kubernetes, and as whom; with --context one of its contexts")
	f.StringVar(&c.KubeNamespace, "isthmus-namespace", "",
		"namespace of the service in Kubernetes (default \""+identity.SystemNamespace+"\")")
	f.StringVar(&c.Identity, "identity", "",
		"directory with your cert.pem, key.pem and ca.pem (env ISTHMUS_IDENTITY)")
	f.StringVar(&c.Sentry, "sentry", "",
		"Dapr's Sentry, host:port, to get a certificate from (env ISTHMUS_SENTRY_ADDRESS)")
	f.StringVar(&c.Anchors, "trust-anchors", "",
		"file with Sentry's roots, its ca.crt; without it DAPR_TRUST_ANCHORS has their text")
	f.StringVar(&c.SentryNamespace, "sentry-namespace", "",
		"namespace of Dapr's control plane, dapr-system in Kubernetes (env DAPR_CONTROLPLANE_NAMESPACE; default \"default\")")
	f.StringVar(&c.SentryTrustDomain, "sentry-trust-domain", "",
		"trust domain of Dapr's control plane, cluster.local in Kubernetes (env DAPR_CONTROLPLANE_TRUST_DOMAIN; default \"localhost\")")
	f.StringVar(&c.AppTrustDomain, "app-trust-domain", "",
		"trust domain that Sentry's certificate is to be in: that of the service (env ISTHMUS_APP_TRUST_DOMAIN; without it public)")
	f.StringVar(&c.Cluster, "cluster", "",
		"cluster whose resolver service must answer (env ISTHMUS_CLUSTER); without it that of any cluster may")
	f.StringVar(&c.Expect, "server-identity", "",
		"app that the service must be, for one in another namespace; * at the end stands for any cluster (default \""+identity.SystemNamespace+"/isthmus-*\")")
	f.BoolVar(&c.Insecure, "insecure", false, "plain text: nothing is encrypted and nobody is checked")
}

// ask connects, makes a call and explains its error.
func (c *connection) ask(cmd *cobra.Command, call func(context.Context, *client.Conn) error) error {
	timeout, err := cmd.Flags().GetDuration("timeout")
	if err != nil {
		return err
	}
	return c.askWithin(cmd, timeout, call)
}

// askWithin is ask with a time of its own.
func (c *connection) askWithin(cmd *cobra.Command, timeout time.Duration, call func(context.Context, *client.Conn) error) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	options, err := c.options(cmd)
	if err != nil {
		return err
	}
	conn, err := client.Dial(ctx, options)
	if err == nil {
		defer conn.Close()
	}
	switch {
	case cmd.Context().Err() != nil:
		return fmt.Errorf("interrupted before the resolver service at %s was asked", options.Service())
	case err != nil:
		return err
	}
	if options.Unnamed() && options.Cluster != "" { // otherwise its certificate says which cluster's it is
		_, err = conn.ClusterName(ctx)
	}
	if err == nil {
		err = call(ctx, conn)
	}
	switch {
	case err == nil:
		return nil
	case cmd.Context().Err() != nil:
		return fmt.Errorf("interrupted while the resolver service at %s was asked; what it was told to write, if anything, may be written: isthmus get shows that", options.Service())
	default:
		return conn.Explain(err)
	}
}

// format is the flag -o.
type format struct {
	show.Format
	more []string
}

// String is the format's name.
func (f *format) String() string { return string(f.Format) }

// names are the formats that a command has.
func (f *format) names() []string { return append(show.Formats(), f.more...) }

// Type is what usage shows.
func (f *format) Type() string { return strings.Join(f.names(), "|") }

// Set takes one of the formats.
func (f *format) Set(s string) error {
	if err := show.CheckPath(show.Format(s)); err != nil {
		return err
	}
	if _, path := show.Format(s).Path(); !path && !slices.Contains(f.names(), s) {
		return fmt.Errorf("want one of %s", strings.Join(f.names(), ", "))
	}
	f.Format = show.Format(s)
	return nil
}

// lines is the error of a format that can't have one line after the other.
func (f *format) lines() error {
	if f.Format == show.Table || f.Format == show.JSON {
		return nil
	}
	return misused(fmt.Errorf("-o %s and --watch exclude each other; use -o json", f))
}

// outputFlag adds -o to a command, with formats beside those of all.
func outputFlag(cmd *cobra.Command, more ...string) *format {
	f := &format{show.Table, more}
	cmd.Flags().VarP(f, "output", "o", "table for people, json or yaml for programs, jsonpath={.a.b} for parts of that, as kubectl has it")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(f.names(), cobra.ShellCompDirectiveNoFileComp))
	return f
}
