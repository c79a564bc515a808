package sandbox

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Guest is a running "isthmus dev join", with the app behind its sidecar.
type Guest struct {
	*Process
	*Daprd // its sidecar, which the command has started; its Process is nil
	Behind *App
}

// GuestOptions say how a laptop joins.
type GuestOptions struct {
	Name       string
	App        catalog.App
	Invitation string
	Args       []string // more of the command
	Env        []string
}

// portsIn finds the ports of the sidecar in what the command prints.
var portsIn = regexp.MustCompile(`DAPR_HTTP_PORT=(\d+) DAPR_GRPC_PORT=(\d+)`)

// Guest has a laptop join, with an app of this process, and waits until its sidecar is ready. The process is
// returned with an error, too, unless there is none.
func (s *Sandbox) Guest(ctx context.Context, o GuestOptions) (*Guest, error) {
	binary, err := Binary("isthmus")
	if err != nil {
		return nil, err
	}
	daprd, err := Binary("daprd")
	if err != nil {
		return nil, err
	}
	app, err := s.App(AppOptions{Cluster: o.Name, App: o.App, Instance: o.Name})
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(app.Address)
	if err != nil {
		return nil, err
	}
	var api, grpc int
	if err := freePorts(&api, &grpc); err != nil {
		return nil, err
	}
	args := append([]string{
		"dev", "join", o.Invitation, "--app", o.App.ID, "--port", port, "--daprd", daprd, "--verbose",
		"--dapr-http-port", strconv.Itoa(api), "--dapr-grpc-port", strconv.Itoa(grpc),
	}, o.Args...)
	g := &Guest{Behind: app}
	if g.Process, err = s.run(ctx, Command{Name: "guest-" + o.Name + "-" + port, Path: binary, LogDir: s.dir, Args: args, Env: o.Env}); err != nil {
		return nil, err
	}
	for {
		if ports := portsIn.FindStringSubmatch(g.Tail(1000)); ports != nil {
			g.Daprd = &Daprd{App: o.App, HTTP: "127.0.0.1:" + ports[1], GRPC: "127.0.0.1:" + ports[2], client: s.client, place: s.place}
			return g, nil
		}
		select {
		case <-g.Process.Done():
			return g, fmt.Errorf("isthmus dev join has ended; its output ends:\n%s", strings.TrimSpace(g.Tail(12)))
		case <-ctx.Done():
			return g, fmt.Errorf("isthmus dev join has not joined: %w; its output ends:\n%s", ctx.Err(), g.Tail(30))
		case <-time.After(20 * time.Millisecond):
		}
	}
}
