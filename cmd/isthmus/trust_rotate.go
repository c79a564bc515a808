package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/rotation"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newTrustRotate(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate --to FILE",
		Short: "Change the root of this cluster, here and in all linked clusters",
		Long: `Change the root of this cluster, without a failed call. Linked clusters are told of the new root, and
those take it whose Cluster object of this one says spec.trust.rotation: accept. The command then
waits until everyone trusts both roots, until every certificate is signed by the new one, and until
all have dropped the old one. It shows whom it waits for and why, by cluster, app and sidecar, and
goes on by itself.

What Isthmus can't do, it says when it is time: to give Dapr's Sentry both roots and the new issuer,
and to restart sidecars. Interrupt it at any time, and go on with the same command: nothing is kept on
this machine. Until the old root is dropped, --back undoes what was done.

The exit code is 1 if --once is given and the rotation is not done.`,
		Example: `  isthmus trust rotate --to new.crt
  isthmus trust rotate --to new.crt --once
  isthmus trust rotate --to new.crt --manifest | kubectl apply --server-side --force-conflicts -f -
  isthmus trust rotate --to new.crt --back`,
		Args: arguments(cobra.NoArgs),
	}
	c.flags(cmd, toWrite)
	r := &rotating{connection: c}
	f := cmd.Flags()
	f.StringVar(&r.to, "to", "", "file with the new root, in PEM")
	f.BoolVar(&r.back, "back", false, "undo the rotation: until the old root is dropped")
	f.BoolVar(&r.once, "once", false, "take the next step if it is time for it, show the rest, and do not wait")
	f.StringSliceVar(&r.assumed, "assume", nil, "cluster, or namespace/app-id, that is not waited for since you have seen to it; can be given more than once")
	f.BoolVar(&r.anchors, "anchors", false, "print the trust anchors that this cluster needs now, in PEM, and do nothing else")
	f.BoolVar(&r.manifest, "manifest", false, "print Dapr's ConfigMap and Secret dapr-trust-bundle with them, and do nothing else")
	f.StringSliceVar(&r.without, "without", nil, "leave a root out of these, by the first digits of its SHA-256; can be given more than once")
	f.BoolVarP(&r.yes, "yes", "y", false, "announce roots without asking")
	_ = cmd.MarkFlagFilename("to", "crt", "pem")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return r.run(cmd) }
	return cmd
}

// rotating is one run of the command.
type rotating struct {
	*connection
	to                                 string
	back, once, anchors, manifest, yes bool
	assumed, without                   []string
	root                               *x509.Certificate
	said, advised                      string // what was shown last
	steady                             int    // looks in a row that found the other root to be of no use
	isthmus, kubectl                   string // flags by which the user got here
	restart                            []string
}

// rotateEvery is how often the command looks. A root is dropped after several looks that found nobody
// who needs it: a sidecar may have been on its way from one replica to another.
const (
	rotateEvery = 2 * time.Second
	steadyLooks = 3
)

func (r *rotating) run(cmd *cobra.Command) error {
	if err := r.read(); err != nil {
		return misused(err)
	}
	for looks := 0; ; looks++ {
		p, err := r.look(cmd)
		switch {
		case err != nil && (looks == 0 || cmd.Context().Err() != nil):
			return err
		case err != nil:
			r.say(cmd, "waiting for this cluster's service: "+show.Lines(err)+"\n", "")
		case r.anchors || r.manifest:
			return r.print(cmd.OutOrStdout(), p)
		default:
			text, todo := r.texts(cmd, p)
			r.say(cmd, text, todo)
			if p.Phase == rotation.Done {
				return nil
			}
			if r.steady++; p.Phase != rotation.Remove {
				r.steady = 0
			}
			if p.Announce != "" && (r.once || p.Phase != rotation.Remove || r.steady >= steadyLooks) {
				if err := r.announce(cmd, p); err != nil {
					return err
				}
				if !r.once {
					continue
				}
			}
		}
		if r.once {
			return errReported
		}
		if !live.Sleep(cmd.Context(), rotateEvery) {
			return errors.New("interrupted; the same command goes on")
		}
	}
}

// read reads the new root. Isthmus never wants its key.
func (r *rotating) read() error {
	if r.to == "" {
		return errors.New("--to names the file with the new root; write --to new.crt")
	}
	if r.anchors && r.manifest {
		return errors.New("--anchors and --manifest exclude each other; keep one")
	}
	text, err := os.ReadFile(r.to)
	if err != nil {
		return fmt.Errorf("%w; give the file with the new root, such as --to new.crt", err)
	}
	if strings.Contains(string(text), "PRIVATE KEY") {
		return fmt.Errorf("%s has a private key; give the certificate alone", r.to)
	}
	roots := identity.RootsIn(string(text))
	if len(roots) != 1 {
		return fmt.Errorf("%s has no root in PEM, or more than one; give the certificate of the new root alone", r.to)
	}
	r.root = roots[0]
	return nil
}

// look asks how far the rotation is.
func (r *rotating) look(cmd *cobra.Command) (p *rotation.Plan, err error) {
	err = r.ask(cmd, func(ctx context.Context, conn *client.Conn) error {
		seen := &rotation.Seen{}
		if seen.Messages, err = rotationsOf(ctx, conn); err != nil {
			return err
		}
		apps, err := v1alpha1.NewInventoryClient(conn).Apps(ctx, &v1alpha1.AppsRequest{WithoutNamed: true})
		if err = wire.Receive(apps, err, func(m *v1alpha1.AppsResponse) error {
			seen.Apps = append(seen.Apps, m.GetApps()...)
			return nil
		}); err != nil {
			return err
		}
		if p, err = rotation.Next(seen, r.root, r.back, r.assumed); err != nil {
			return err
		}
		r.isthmus, r.kubectl = conn.Flags()
		r.restart = linkWay(ctx, cmd, conn, "", lackingOf(p)...).Restart
		return nil
	})
	return p, err
}

// lackingOf are the apps of this cluster that are to be restarted.
func lackingOf(p *rotation.Plan) (all []*v1alpha1.LackingApp) {
	for _, w := range p.Waiting {
		namespace, id, _ := strings.Cut(w.App, "/")
		if w.Cluster == p.Cluster && w.Fix == rotation.FixRestart && !slices.ContainsFunc(all, func(a *v1alpha1.LackingApp) bool { return show.Name(a.GetApp()) == w.App }) {
			all = append(all, &v1alpha1.LackingApp{App: &v1alpha1.App{Namespace: namespace, Id: id}})
		}
	}
	return all
}

// rotationsOf is what all replicas show.
func rotationsOf(ctx context.Context, conn grpc.ClientConnInterface) (all []*v1alpha1.ShowRotationResponse, err error) {
	stream, err := v1alpha1.NewRotationClient(conn).Show(ctx, &v1alpha1.ShowRotationRequest{})
	err = wire.Receive(stream, err, func(m *v1alpha1.ShowRotationResponse) error {
		all = append(all, m)
		return nil
	})
	if status.Code(err) == codes.Unimplemented {
		err = errors.New("this service is of an older release, which rotates no roots; see docs/how-to/trust.md for the steps by hand")
	}
	return all, err
}

// announce has peers told of roots, if the person agrees.
func (r *rotating) announce(cmd *cobra.Command, p *rotation.Plan) error {
	what := "announce the new root to all peers"
	if p.Phase == rotation.Remove && !r.back {
		what = "drop the old root, from which there is no way back"
	} else if p.Phase == rotation.Remove {
		what = "withdraw the new root"
	}
	if !r.yes {
		if still, err := agreed(cmd, p, what, func() (*rotation.Plan, error) { return r.look(cmd) }); !still {
			return err
		}
	}
	return r.ask(cmd, func(ctx context.Context, conn *client.Conn) error {
		change, err := v1alpha1.NewRotationClient(conn).Announce(ctx, &v1alpha1.AnnounceRootsRequest{Roots: p.Announce})
		if err == nil {
			show.Say(cmd.OutOrStdout(), "%s announced to peers:%s\n", time.Now().Format(time.TimeOnly), show.RootsChange(change))
		} else if strings.Contains(err.Error(), "store ") { // which may be read-only
			err = fmt.Errorf("%w; if objects come from elsewhere, write Cluster %s there with these spec.trust.roots, and run this again:\n%s", err, p.Cluster, p.Announce)
		}
		return err
	})
}

// print prints the trust anchors that this cluster needs now.
func (r *rotating) print(w io.Writer, p *rotation.Plan) error {
	m := &v1alpha1.LinkTrustResponse{OwnRoots: show.WithoutRoots(p.Anchors, r.without), SentryNamespace: p.Sentry}
	if r.manifest {
		return show.TrustManifest(w, m)
	}
	return show.TrustAnchors(w, m)
}

// say shows a text if it is news, and what is to be done if that is.
func (r *rotating) say(cmd *cobra.Command, text, todo string) {
	if text != r.said {
		show.Say(cmd.OutOrStdout(), "%s ", time.Now().Format(time.TimeOnly))
		_, _ = io.WriteString(cmd.OutOrStdout(), text)
	}
	if todo != r.advised && todo != "" {
		_, _ = io.WriteString(cmd.OutOrStdout(), todo+"\n")
	}
	r.said, r.advised = text, cmp.Or(todo, r.advised)
}

// texts are how far the rotation has come, and what is to be done, for people.
func (r *rotating) texts(cmd *cobra.Command, p *rotation.Plan) (text, todo string) {
	var b, advice strings.Builder
	s := &show.RotationStep{
		Phase: string(p.Phase), Back: p.Back, Sentry: p.Sentry, Restart: r.restart, Kubectl: r.kubectl, Until: p.Until,
		Command: cmd.CommandPath() + " --to " + r.to + r.isthmus,
	}
	for _, w := range p.Waiting {
		s.Waiting = append(s.Waiting, []string{w.Cluster, w.App, w.Sidecar, w.Why, w.Fix})
		s.Anchors = s.Anchors || w.Fix == rotation.FixAnchors
		s.Restarts = s.Restarts || w.Cluster == p.Cluster && w.Fix == rotation.FixRestart
		s.Issuer = s.Issuer || w.Fix == rotation.FixIssuer
	}
	for _, root := range p.Orphans {
		s.Orphans = append(s.Orphans, identity.Fingerprint(root))
	}
	_ = s.Write(&b) // a Builder fails never
	s.Advise(&advice)
	return b.String(), advice.String()
}

// agreed asks a person, who may take hours to answer: then it looks again whether what they agree to is
// still the next step. Somebody may have come meanwhile who needs the old root, or another rotation.
func agreed(cmd *cobra.Command, p *rotation.Plan, what string, look func() (*rotation.Plan, error)) (still bool, err error) {
	if err := askable(cmd, what); err != nil {
		return false, err
	}
	if !askPerson(cmd, what+"?") {
		return false, errors.New("nothing was changed; answer yes, or give --yes")
	}
	now, err := look()
	if err != nil {
		return false, err
	}
	if now.Phase != p.Phase || now.Announce != p.Announce {
		show.Say(cmd.OutOrStdout(), "nothing was changed, since it is another step by now\n")
		return false, nil
	}
	return true, nil
}

func newTrustAccept(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "accept CLUSTER",
		Short: "Take over the roots that a linked cluster announces for itself",
		Long: `Show the roots that a linked cluster announces for itself, and write them into spec.trust.roots of its
Cluster object. It is for a cluster whose object does not say spec.trust.rotation: accept, and holds
for this once. Compare the fingerprints with the cluster's operator over another channel first.`,
		Example: `  isthmus trust accept east
  isthmus trust accept east --yes`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: c.completePeer,
	}
	c.flags(cmd, toWrite)
	yes := cmd.Flags().BoolP("yes", "y", false, "write them without asking")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var of *v1alpha1.PeerRotation
		err := c.ask(cmd, func(ctx context.Context, conn *client.Conn) error {
			messages, err := rotationsOf(ctx, conn)
			for _, m := range messages {
				for _, p := range m.GetPeers() {
					if p.GetCluster() == args[0] && (of == nil || of.GetAnnounced() == "") {
						of = p
					}
				}
			}
			return err
		})
		switch {
		case err != nil:
			return err
		case of == nil:
			return fmt.Errorf("there is no Cluster object for %s here; see isthmus link list", args[0])
		case of.GetAnnounced() == "":
			return fmt.Errorf("cluster %s announces no roots for itself, as far as is heard here; see isthmus status", args[0])
		}
		asked, news, err := show.AnnouncedRoots(show.ScreenOf(cmd.OutOrStdout()), of, time.Now())
		if err != nil || !news {
			return err
		}
		if !*yes {
			if err := askable(cmd, "write them"); err != nil {
				return err
			}
			if !askPerson(cmd, "are these the fingerprints that its operator sees, and is this to be written?") {
				return errors.New("nothing was written; answer yes, or give --yes")
			}
		}
		return c.ask(cmd, func(ctx context.Context, conn *client.Conn) error {
			change, err := v1alpha1.NewRotationClient(conn).Accept(ctx, &v1alpha1.AcceptRootsRequest{Cluster: args[0], Roots: asked})
			if err == nil {
				show.Say(cmd.OutOrStdout(), "Cluster %s changed:%s\n", args[0], show.RootsChange(change))
			}
			return err
		})
	}
	return cmd
}
