package main

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// askFor asks the service for one answer. Errors are as of [connection.ask].
func askFor[C, Q, A any](c *connection, cmd *cobra.Command, of func(grpc.ClientConnInterface) C,
	method func(C, context.Context, *Q, ...grpc.CallOption) (*A, error), req *Q,
) (answer *A, err error) {
	err = c.ask(cmd, func(ctx context.Context, conn *client.Conn) (err error) {
		answer, err = method(of(conn), ctx, req)
		return err
	})
	return answer, err
}

// askEach asks the service for a stream, whose messages take has one after the other.
func askEach[C, Q, M any](c *connection, cmd *cobra.Command, of func(grpc.ClientConnInterface) C,
	method func(C, context.Context, *Q, ...grpc.CallOption) (grpc.ServerStreamingClient[M], error), req *Q, take func(*M) error,
) error {
	return c.ask(cmd, func(ctx context.Context, conn *client.Conn) error {
		stream, err := method(of(conn), ctx, req)
		return wire.Receive(stream, err, take)
	})
}

// askList asks the service for a stream, and returns what its messages list.
func askList[C, Q, M, T any](c *connection, cmd *cobra.Command, of func(grpc.ClientConnInterface) C,
	method func(C, context.Context, *Q, ...grpc.CallOption) (grpc.ServerStreamingClient[M], error), req *Q, listed func(*M) []T,
) (all []T, err error) {
	err = askEach(c, cmd, of, method, req, func(m *M) error {
		all = append(all, listed(m)...)
		return nil
	})
	return all, err
}

// printAnswer prints an answer: for people by table.
func printAnswer(cmd *cobra.Command, f show.Format, kind string, answer proto.Message, table func(*show.Screen) error) error {
	if f != show.Table {
		return show.Print(cmd.OutOrStdout(), f, kind, answer)
	}
	return table(show.ScreenOf(cmd.OutOrStdout()))
}

// printList prints a list of kind: for people by table, or that there is none of what they asked for, about
// an app.
func printList[M proto.Message](c *connection, cmd *cobra.Command, f show.Format, kind, what string, about catalog.App, all []M, table func(*show.Screen) error) error {
	switch {
	case f != show.Table:
		return show.PrintList(cmd.OutOrStdout(), f, kind, all)
	case len(all) == 0:
		printNone(c, cmd, what, about)
		return nil
	}
	return table(show.ScreenOf(cmd.OutOrStdout()))
}
