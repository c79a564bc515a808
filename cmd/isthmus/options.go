package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/kube"
	"github.com/isthmus-mesh/isthmus/internal/contexts"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

const defaultServer = "127.0.0.1:7400"

// setting is one that a flag, a context and a variable of the environment can have.
type setting struct {
	flag, env       string // env is empty where another part reads the environment
	option, context *string
	group           int // of settings that exclude each other: where one is said, the rest is not looked for
}

// Groups of settings: where the service is, the user, and the expected service.
const (
	alone = iota
	place
	kubernetes // in place of where it is, and of who asks
	asks
	answers
)

func settingsOf(o *client.Options, c *contexts.Context) []setting {
	return []setting{
		{"server", "ISTHMUS_SERVER", &o.Server, &c.Server, place},
		{"socket", "ISTHMUS_SOCKET", &o.Socket, &c.Socket, place},
		{"kubeconfig", "", &o.Kubeconfig, &c.Kubeconfig, kubernetes},
		{"kube-context", "", &o.KubeContext, &c.KubeContext, kubernetes},
		{"isthmus-namespace", "", &o.KubeNamespace, &c.KubeNamespace, kubernetes},
		{"identity", "ISTHMUS_IDENTITY", &o.Identity, &c.Identity, asks},
		{"sentry", "ISTHMUS_SENTRY_ADDRESS", &o.Sentry, &c.Sentry, asks},
		{"trust-anchors", "", &o.Anchors, &c.TrustAnchors, alone},
		{"sentry-namespace", "", &o.SentryNamespace, &c.SentryNamespace, alone},
		{"sentry-trust-domain", "", &o.SentryTrustDomain, &c.SentryTrustDomain, alone},
		{"app-trust-domain", "ISTHMUS_APP_TRUST_DOMAIN", &o.AppTrustDomain, &c.AppTrustDomain, alone},
		{"cluster", "ISTHMUS_CLUSTER", &o.Cluster, &c.Cluster, answers},
		{"server-identity", "", &o.Expect, &c.ServerIdentity, answers},
	}
}

// options are what a command was told, by flags first, then by a context, and then by the
// environment.
func (c *connection) options(cmd *cobra.Command) (client.Options, error) {
	o := c.Options
	o.Note = func(text string) { show.Say(cmd.ErrOrStderr(), "%s\n", text) }
	from, err := c.from(cmd, &o)
	if err != nil {
		return o, err
	}
	o.Context = from.Name
	if o.OnKubernetes() || from.OnKubernetes() {
		if !o.OnKubernetes() {
			o.Kubeconfig, o.KubeContext = from.Kubeconfig, from.KubeContext
		}
		o.KubeNamespace = cmp.Or(o.KubeNamespace, from.KubeNamespace)
		if o.Expect == "" {
			o.Cluster = cmp.Or(o.Cluster, from.Cluster, os.Getenv("ISTHMUS_CLUSTER"))
		}
		return o, nil
	}
	if o.Identity != "" || o.Sentry != "" || o.Insecure || o.Socket != "" {
		// Roots that a context has go with its own Sentry.
		from.Identity, from.Sentry, from.TrustAnchors, from.Insecure = "", "", "", false
	}
	o.Insecure = o.Insecure || from.Insecure
	settings := settingsOf(&o, &from)
	fillFrom(settings, o.Insecure, func(s setting) string { return *s.context })
	fillFrom(settings, o.Insecure, func(s setting) string {
		if value := os.Getenv(s.env); value != client.NoSocket {
			return value
		}
		return ""
	})
	if o.Server == "" && o.Socket == "" && o.Identity == "" && o.Sentry == "" && !o.Insecure {
		o.Socket, err = client.LocalSocket(o.Cluster)
	}
	if o.Socket == "" {
		o.Server = cmp.Or(o.Server, defaultServer)
	}
	return o, err
}

// from is the saved context that a command uses; an empty one for none. The current one counts only
// where nothing else names a service. A name that is none of a saved context is one of the
// kubeconfig, and goes into the options.
func (c *connection) from(cmd *cobra.Command, o *client.Options) (contexts.Context, error) {
	name := cmp.Or(c.context, os.Getenv("ISTHMUS_CONTEXT"))
	elsewhere := o.Server != "" || o.Socket != ""
	switch {
	case o.Kubeconfig != "" || asPlugin(cmd) && !elsewhere:
		chosen, err := kube.Choose(o.Kubeconfig, c.context)
		o.KubeContext = chosen
		return contexts.Context{}, misusedContext(err)
	case name == "" && os.Getenv("ISTHMUS_SERVER") != "":
		return contexts.Context{}, nil
	}
	file, err := loadContexts(cmd)
	if err != nil {
		return contexts.Context{}, err
	}
	if name = cmp.Or(name, file.Current); name == "" {
		return contexts.Context{}, nil
	}
	saved, err := file.Find(name)
	if errors.Is(err, contexts.ErrNoContext) && !elsewhere {
		if _, none := kube.Choose("", name); none == nil {
			o.KubeContext = name
			return contexts.Context{}, nil
		}
		err = fmt.Errorf("%w; your kubeconfig has none of that name either", err)
	}
	if elsewhere {
		saved.Kubeconfig, saved.KubeContext = "", ""
		saved.Cluster, saved.ServerIdentity = "", "" // those of the service that the context names
	}
	return saved, misused(err)
}

// misusedContext makes an error one of wrong use where a context was named that is not there.
func misusedContext(err error) error {
	if errors.Is(err, kube.ErrNoContext) {
		return misused(err)
	}
	return err
}

// fillFrom gives settings that have no value the one that a source has. Of those that exclude
// each other none gets one where another has one.
func fillFrom(settings []setting, insecure bool, source func(setting) string) {
	said := map[int]bool{asks: insecure, kubernetes: true}
	for _, s := range settings {
		said[s.group] = said[s.group] || s.group != alone && *s.option != ""
	}
	for _, s := range settings {
		if *s.option == "" && !said[s.group] {
			*s.option = source(s)
		}
		if s.flag == "socket" && *s.option != "" {
			said[asks] = true // it needs nobody's certificate
		}
	}
}

// writeTo changes what flags say in a context. Where the service is, and who answers, is one
// of two, and who asks one of three; a kubeconfig says where, and who asks.
func (c *connection) writeTo(cmd *cobra.Command, to *contexts.Context) {
	o := c.Options
	changed := cmd.Flags().Changed
	if onKubernetes := changed("kubeconfig") || changed("kube-context"); onKubernetes {
		*to = contexts.Context{Name: to.Name, Cluster: to.Cluster, KubeNamespace: to.KubeNamespace}
	} else if changed("server") || changed("socket") {
		to.Server, to.Socket, to.Kubeconfig, to.KubeContext, to.KubeNamespace = "", "", "", "", ""
	}
	if changed("identity") || changed("sentry") || changed("insecure") || changed("socket") {
		to.Identity, to.Sentry, to.Insecure = "", "", o.Insecure
		if !changed("sentry") {
			to.TrustAnchors = ""
		}
	}
	if changed("cluster") || changed("server-identity") {
		to.Cluster, to.ServerIdentity = "", ""
	}
	for _, s := range settingsOf(&o, to) {
		if changed(s.flag) {
			*s.context = *s.option
		}
	}
}

// optionsOf are those of a context alone.
func optionsOf(c contexts.Context) client.Options {
	o := client.Options{Context: c.Name, Insecure: c.Insecure}
	for _, s := range settingsOf(&o, &c) {
		*s.option = *s.context
	}
	return o
}
