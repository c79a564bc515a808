package component

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// readyInterval is how often awaitReady asks daprd whether it is ready.
const readyInterval = 50 * time.Millisecond

// awaitReady returns when daprd is ready, which includes that its app listens, or when ctx ends.
// daprd loads name resolution before any of its servers, and long before it has found its app. Until
// then it refuses calls.
//
// daprd does not tell components when it is ready. So awaitReady asks the health endpoint of
// daprd's HTTP API. If that is not reached, for example on a Unix socket, it waits for the server
// for other sidecars instead, which starts later.
func awaitReady(ctx context.Context, self nr.Instance) {
	if self.DaprHTTPPort == 0 {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var serves atomic.Bool
	var probing sync.WaitGroup
	probing.Go(func() { serves.Store(awaitServer(ctx, self.Address, self.DaprInternalPort)) })
	defer probing.Wait()
	defer cancel()
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}} // no proxy
	for ctx.Err() == nil {
		// The order matters: if the later server runs and the earlier one is not found, it never
		// will be.
		served := serves.Load()
		ready, found := healthy(ctx, client, self)
		if ready || served && !found {
			return
		}
		live.Sleep(ctx, readyInterval)
	}
}

// healthy asks daprd's HTTP API whether daprd is ready. found is false if nothing answers. Every
// answer except a server error counts as ready.
func healthy(ctx context.Context, client *http.Client, self nr.Instance) (ready, found bool) {
	for _, host := range []string{"127.0.0.1", "::1", self.Address} {
		url := "http://" + net.JoinHostPort(host, strconv.Itoa(self.DaprHTTPPort)) + "/v1.0/healthz"
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			continue
		}
		res, err := client.Do(req)
		if err != nil {
			continue
		}
		_ = res.Body.Close()
		return res.StatusCode < http.StatusInternalServerError, true
	}
	return false, false
}

// awaitServer waits until a gRPC server answers at an address, and returns false if ctx ends first.
func awaitServer(ctx context.Context, host string, port int) bool {
	for ctx.Err() == nil {
		if answers(ctx, net.JoinHostPort(host, strconv.Itoa(port))) {
			return true
		}
		live.Sleep(ctx, readyInterval)
	}
	return false
}

// answers reports whether a gRPC server answers at an address, with or without TLS. An open port
// proves nothing: daprd 1.18.2 listens there before it loads name resolution, and serves much later.
func answers(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	defer conn.Close()
	// A server without TLS speaks first, and what it says is no TLS.
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}).HandshakeContext(ctx)
	var plainText tls.RecordHeaderError
	return err == nil || errors.As(err, &plainText)
}
