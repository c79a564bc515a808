package edge

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// ServeHTTP serves requests until ctx ends, and closes the listener. Then it calls ending, unless that
// is nil, and gives requests that are under way some time to end. It returns once none is.
func ServeHTTP(ctx context.Context, server *http.Server, l net.Listener, log *slog.Logger, patience time.Duration, ending func()) error {
	server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		if ending != nil {
			ending()
		}
		deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if server.Shutdown(deadline) != nil {
			server.Close()
		}
	})
	err := server.Serve(l)
	if !stop() { // ctx has ended, whichever way serving did
		<-ended
		return nil
	}
	server.Close()
	return err
}
