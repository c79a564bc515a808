package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// nextHeader has the URLs that a call goes to next, one for each relay.
const nextHeader = "X-Next"

// relay is a process that passes calls on, and does nothing else.
func relay(context.Context, []byte) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	server := &http.Server{ReadHeaderTimeout: measure.Patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			return // the sidecar asks what its app is
		}
		all := strings.Split(strings.Join(r.Header.Values(nextHeader), ","), ",")
		req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, all[0], r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		req.ContentLength = r.ContentLength
		_ = http.NewResponseController(w).EnableFullDuplex() // as in the bridge
		if len(all) > 1 {
			req.Header.Set(nextHeader, strings.Join(all[1:], ","))
		}
		res, err := client.Do(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer res.Body.Close()
		w.WriteHeader(res.StatusCode)
		_, _ = io.Copy(w, res.Body)
	})}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	return measure.Answer(map[string]measure.Method{
		"address": measure.Typed(func(measure.None) (string, error) { return listener.Addr().String(), nil }),
	})
}
