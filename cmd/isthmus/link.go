package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/internal/atomicfile"
	"github.com/isthmus-mesh/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/resolver-service/membership/invitation"
)

func newLink(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "link COMMAND",
		Short: "Make two clusters known to each other",
		Long: `Make two clusters known to each other by an invitation. One cluster invites, the other accepts.
Their resolver services meet at a gateway, prove themselves, and each writes the Cluster object of
the other. Both commands print the same four words if nobody is in between.`,
		Example: `  isthmus link invite west --context east
  isthmus link accept --context west`,
		RunE: unknownCommand,
		Args: cobra.ArbitraryArgs,
	}
	cmd.AddCommand(newLinkInvite(c), newLinkAccept(c), newLinkList(c), newLinkRevoke(c), newLinkTrust(c), newLinkUnlink(c))
	return cmd
}

// linkFlags are the flags of both sides.
type linkFlags struct {
	gateways []string
	replace  bool
	confirm  bool
	out      string
}

func (f *linkFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.gateways, "gateway", nil, "where the other cluster reaches this one's gateway, host:port; can be given more than once; without it gateway.advertise of isthmus.yaml, or in Kubernetes the address of the gateway's load balancer")
	cmd.Flags().BoolVar(&f.replace, "replace", false, "replace a Cluster object that names other gateways or another trust")
	cmd.Flags().BoolVar(&f.confirm, "confirm", false, "write nothing before you have found the same four words on both sides")
	cmd.Flags().StringVar(&f.out, "out", "", "write the Cluster object to this file, or - for standard output, and not to the store")
	_ = cmd.MarkFlagFilename("out", "yaml", "yml")
}

func (f *linkFlags) options() *v1alpha1.LinkOptions {
	return &v1alpha1.LinkOptions{Gateways: f.gateways, Replace: f.replace, Confirm: f.confirm, Out: f.out != ""}
}

// ask asks the service, and again with the addresses that Kubernetes knows of its gateway if none is
// known otherwise. That refusal comes before anything has happened.
func (f *linkFlags) ask(ctx context.Context, cmd *cobra.Command, conn *client.Conn, call func() error) error {
	err := call()
	if err == nil || len(f.gateways) > 0 || !strings.Contains(err.Error(), "("+string(invitation.NoGateway)+")") {
		return err
	}
	if f.gateways = conn.Gateways(ctx); len(f.gateways) == 0 {
		return err
	}
	show.Say(cmd.ErrOrStderr(), "other clusters reach this one's gateway at %s, as its Service has it\n", strings.Join(f.gateways, ", "))
	return call()
}

// askable refuses to go on where nobody can be asked. what is what --yes would do.
func askable(cmd *cobra.Command, what string) error {
	if f, ok := cmd.InOrStdin().(*os.File); ok && !show.ScreenOf(f).Terminal {
		return misused(fmt.Errorf("nobody can be asked here: repeat with --yes to %s", what))
	}
	return nil
}

// askPerson asks a question, and tells whether the answer is yes. No answer is no.
func askPerson(cmd *cobra.Command, question string) bool {
	show.Say(cmd.ErrOrStderr(), "%s [yes/no] ", question)
	said := make(chan string, 1)
	go func() { // goes on if the program is told to end meanwhile
		line, _ := readLine(cmd.InOrStdin())
		said <- line
	}()
	select {
	case line := <-said:
		return strings.EqualFold(strings.TrimSpace(line), "yes")
	case <-cmd.Context().Done():
		return false
	}
}

// linking follows a link from one side, and speaks with the person there.
type linking struct {
	cmd   *cobra.Command
	conn  *client.Conn
	flags *linkFlags
	asked bool
	words string
	last  *v1alpha1.LinkState
}

// take takes the next state.
func (l *linking) take(s *v1alpha1.LinkState) error {
	l.last = s
	if words := strings.Join(s.GetWords(), " "); words != "" && words != l.words {
		l.words = words
		show.Say(l.cmd.ErrOrStderr(), "words: %s\n", words)
	}
	if s.GetState() != "confirm" || l.asked {
		return nil
	}
	l.asked = true
	same := askPerson(l.cmd, fmt.Sprintf("does the other side, %s, show the same four words?", s.GetCluster()))
	ctx, cancel := context.WithTimeout(l.cmd.Context(), toRead)
	defer cancel()
	_, err := v1alpha1.NewLinkClient(l.conn).Confirm(ctx, &v1alpha1.ConfirmRequest{Id: s.GetId(), Same: same})
	return err
}

// end tells what became of the link, and what is still to be done.
func (l *linking) end(ctx context.Context, output show.Format) error {
	s := l.last
	if s.GetState() != "linked" {
		return errors.New(s.GetError())
	}
	if l.flags.out != "" {
		return l.writeObject()
	}
	if output != show.Table {
		return show.PrintLine(l.cmd.OutOrStdout(), output, "Link", s)
	}
	show.Say(l.cmd.OutOrStdout(), "linked with cluster %s; its Cluster object here: %s\n", s.GetCluster(), s.GetResult())
	answer, err := trustOf(ctx, l.conn, s.GetCluster())
	if err != nil {
		return err
	}
	return show.LinkTrust(show.ScreenOf(l.cmd.OutOrStdout()), s.GetCluster(), answer, linkWay(ctx, l.cmd, l.conn, s.GetCluster(), answer.GetApps()...))
}

// writeObject writes the other cluster's object to a file.
func (l *linking) writeObject() error {
	text, err := show.ClusterYAML(l.last)
	if err != nil {
		return err
	}
	if l.flags.out == "-" {
		_, err = io.WriteString(l.cmd.OutOrStdout(), text)
	} else {
		err = atomicfile.Write(l.flags.out, func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		})
	}
	if err == nil {
		show.Say(l.cmd.ErrOrStderr(), "linked with cluster %s, once its object is applied here; then see %s\n", l.last.GetCluster(), linkWay(l.cmd.Context(), l.cmd, l.conn, l.last.GetCluster()).Trust)
	}
	return err
}

// secretArgument is the argument, or a line of standard input if there is none, or it is "-".
func secretArgument(cmd *cobra.Command, args []string) (string, error) {
	if len(args) > 0 && args[0] != "-" {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning: an argument is a secret no longer: lists of processes and the shell's history show it; leave it out, and paste it or pipe it in")
		return args[0], nil
	}
	if f, ok := cmd.InOrStdin().(*os.File); ok && show.ScreenOf(f).Terminal {
		fmt.Fprintln(cmd.ErrOrStderr(), "paste the invitation, and press Enter:")
	}
	return readLine(cmd.InOrStdin())
}

// maxLine bounds a line that is read, in bytes.
const maxLine = 32 << 10

// readLine reads a line and nothing after it, since more may be asked for later.
func readLine(from io.Reader) (string, error) {
	var line []byte
	for b := make([]byte, 1); len(line) < maxLine; {
		n, err := from.Read(b)
		switch {
		case n == 1 && b[0] == '\n', err == io.EOF && len(line)+n > 0:
			return string(append(line, b[:n]...)), nil
		case err != nil:
			return "", err
		}
		line = append(line, b[:n]...)
	}
	return "", fmt.Errorf("a line is longer than %d bytes", maxLine)
}
