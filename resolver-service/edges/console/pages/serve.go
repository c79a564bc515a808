package pages

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
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
	defer cancel()
	server := &http.Server{
		Handler: guarded, ReadHeaderTimeout: readWithin, ReadTimeout: answerWithin, WriteTimeout: answerWithin, IdleTimeout: time.Minute,
		MaxHeaderBytes: mostHeaders, ConnState: state, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return requests },
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		cancel() // streams end
		deadline, done := context.WithTimeout(context.Background(), endWithin)
		defer done()
		if server.Shutdown(deadline) != nil {
			server.Close()
		}
	})
	err := server.Serve(l)
	if !stop() {
		<-closed
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
