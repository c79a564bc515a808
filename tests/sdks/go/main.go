// Command sdk-go is an app by Dapr's SDK for Go: it hosts actors of the type in TYPE, or calls
// actors where TYPE is empty.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/dapr/go-sdk/actor"
	"github.com/dapr/go-sdk/client"
	daprd "github.com/dapr/go-sdk/service/http"
)

func main() {
	at := net.JoinHostPort("127.0.0.1", os.Getenv("PORT"))
	run := func() error { return http.ListenAndServe(at, http.HandlerFunc(call)) }
	if typ := os.Getenv("TYPE"); typ != "" {
		service := daprd.NewService(at)
		service.RegisterActorImplFactoryContext(func() actor.ServerContext { return &Basket{typ: typ} })
		run = service.Start
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Basket keeps its items in memory. The SDK wants its name exported.
type Basket struct {
	actor.ServerImplBaseCtx
	typ   string
	items []string
}

// Answer is what Add returns.
type Answer struct {
	SDK   string   `json:"sdk"`
	Items []string `json:"items"`
}

// Type is the actor's.
func (b *Basket) Type() string { return b.typ }

// SaveState has nothing to save.
func (b *Basket) SaveState(context.Context) error { return nil }

// Add adds items. Two calls at a time would lose some.
func (b *Basket) Add(_ context.Context, items []string) (*Answer, error) {
	all := append(b.items[:len(b.items):len(b.items)], items...)
	time.Sleep(2 * time.Millisecond)
	b.items = all
	return &Answer{"go", all}, nil
}

// Fail returns an error.
func (b *Basket) Fail(_ context.Context, why []string) (*Answer, error) {
	return nil, fmt.Errorf("no basket takes %s", why)
}

// stub is a client's actor.
type stub struct {
	typ, id string
	Add     func(context.Context, []string) (*Answer, error)
	Fail    func(context.Context, []string) (*Answer, error)
}

// Type is the actor's.
func (s *stub) Type() string { return s.typ }

// ID is the actor's.
func (s *stub) ID() string { return s.id }

// call calls an actor by the SDK's client.
func call(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	c, err := client.NewClientWithAddressContext(r.Context(), net.JoinHostPort("127.0.0.1", os.Getenv("DAPR_GRPC_PORT")))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer c.Close()
	s := &stub{typ: query.Get("type"), id: query.Get("id")}
	c.ImplActorClientStub(s)
	method := s.Add
	if query.Get("method") == "Fail" {
		method = s.Fail
	}
	a, err := method(r.Context(), []string{query.Get("item")})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	_ = json.NewEncoder(w).Encode(a) // the caller has gone when this fails
}
