package pages

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	httpedge "github.com/isthmus-mesh/isthmus/resolver-service/edges/edge"
)

// How long a browser may take for one request, and how long pages have to be answered at the end. A
// stream of changes extends its time with each event that was taken.
const (
	readWithin   = 10 * time.Second
	answerWithin = slowest + 15*time.Second
	endWithin    = 2 * time.Second
	mostHeaders  = 64 << 10
)

// Serve serves pages behind a gate until ctx ends, and returns once no request is under way. state
// may be nil; see [http.Server.ConnState].
func Serve(ctx context.Context, l net.Listener, guarded http.Handler, state func(net.Conn, http.ConnState), log *slog.Logger) error {
	requests, cancel := context.WithCancel(context.Background())
	defer cancel() // streams end
	server := &http.Server{
		Handler: guarded, ReadHeaderTimeout: readWithin, ReadTimeout: answerWithin, WriteTimeout: answerWithin, IdleTimeout: time.Minute,
		MaxHeaderBytes: mostHeaders, ConnState: state,
		BaseContext: func(net.Listener) context.Context { return requests },
	}
	return httpedge.ServeHTTP(ctx, server, l, log, endWithin, cancel)
}
