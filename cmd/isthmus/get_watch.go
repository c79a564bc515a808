package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// How often a watch reads objects: soon after an event, but not more often than that; and now and then
// without one, since a service that stops loses its events.
const (
	readAgain  = 200 * time.Millisecond
	readAnyway = 30 * time.Second
)

// watchObjects writes the objects that a key names, and then each that changes, until the command is
// interrupted. What is written shows in the service's events, which are a reason to read again.
func watchObjects(c *connection, cmd *cobra.Command, key catalog.Key, output *format) error {
	if output.Format == show.YAML {
		return output.lines()
	}
	objects, err := c.get(cmd, key)
	if err != nil {
		return err
	}
	watch := &show.ObjectWatch{W: cmd.OutOrStdout(), Format: output.Format}
	hints := make(chan struct{}, 1)
	go followEvents(c, cmd, hints)
	said := ""
	for {
		if err == nil {
			if err = watch.Update(objects); err != nil {
				return err
			}
			said = ""
		} else if text := err.Error(); text != said {
			said = text
			show.Say(cmd.ErrOrStderr(), "isthmus: %s\n", text)
		}
		select {
		case <-cmd.Context().Done():
			return nil // that is how a watch ends
		case <-hints:
		case <-time.After(readAnyway):
		}
		if !live.Sleep(cmd.Context(), readAgain) {
			return nil
		}
		objects, err = c.list(cmd, key)
	}
}

// list gets the objects that a key names; none if one that is named is not there.
func (c *connection) list(cmd *cobra.Command, key catalog.Key) (objects []show.Object, err error) {
	objects, err = c.get(cmd, catalog.Key{Kind: key.Kind, Namespace: key.Namespace})
	return slices.DeleteFunc(objects, func(o show.Object) bool { return key.Name != "" && o.Key() != key }), err
}

// followEvents tells of events until the command is interrupted; also of a connection that is lost,
// and may have lost some.
func followEvents(c *connection, cmd *cobra.Command, hints chan<- struct{}) {
	tell := func() {
		select {
		case hints <- struct{}{}:
		default:
		}
	}
	for {
		_ = c.askWithin(cmd, forever, func(ctx context.Context, conn *client.Conn) error {
			stream, err := v1alpha1.NewInventoryClient(conn).Events(ctx, &v1alpha1.EventsRequest{SinceUnixMs: time.Now().UnixMilli(), Follow: true})
			tell() // what changed before is not among them
			return wire.Receive(stream, err, func(*v1alpha1.EventsResponse) error { tell(); return nil })
		})
		if !live.Sleep(cmd.Context(), 2*time.Second) {
			return
		}
		tell()
	}
}
