package dapr

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// requestTimeout is how long one request to a server may take. With the heartbeat it
// bounds how long a dead or cut off server goes unnoticed.
const requestTimeout = 4500 * time.Millisecond

// snapshot is what a store held at one moment.
type snapshot struct {
	whole  bool             // it was read by one request; otherwise its head is that of the beginning
	head   string           // its text; empty where there is none
	pairs  map[string]held  // by path
	denied map[string]error // paths that the credentials may not read
}

// engine is one connected store, with the settings of the user's component. Dapr's own
// interface reads one key at a time and can neither list nor write, so what a store can do
// better by its own protocol is done so: read many keys at one moment, list, write
// in a transaction. Its methods may be called by many at once.
type engine interface {
	// list reads everything in scope.
	list(ctx context.Context) (snapshot, error)

	// some reads the head and these paths, at one moment.
	some(ctx context.Context, paths []string) (snapshot, error)

	close()
}

// writer is an engine that can be written.
type writer interface {
	// commit reads the head and these paths, asks what is to become of them, and makes
	// that so if they have not changed meanwhile, all or nothing. Otherwise it asks again.
	// A plan without a head leaves the head as it is.
	commit(ctx context.Context, paths []string, decide func(snapshot) (rewrite, error)) error

	// mayWrite tells why that can't be, and writes nothing.
	mayWrite(ctx context.Context) error
}

// rewrite is the keys that a commit changes.
type rewrite struct {
	edits []configstore.Edit
	head  configstore.Head
}

// version is what the edits get, in a store that has versions; empty without a head.
func (p rewrite) version() string {
	if len(p.head.Batches) == 0 {
		return ""
	}
	return strconv.FormatUint(p.head.Revision(), 10)
}

// headText is the new head, empty for none.
func (p rewrite) headText() string {
	if len(p.head.Batches) == 0 {
		return ""
	}
	return p.head.Text(headLimit)
}

// settings is what an engine is made of.
type settings struct {
	component component
	names     names
	label     string // of Azure's settings
	scrub     *scrubber
	log       *slog.Logger
	once      *notices
}

// daprLogger is a logger for Dapr's code.
func (s settings) logger() *daprLogger { return &daprLogger{log: s.log, scrub: s.scrub} }

// connect opens an engine. It may ask the server.
func connect(ctx context.Context, s settings) (engine, error) {
	switch s.component.kind {
	case kindRedis:
		return connectRedis(s)
	case kindPostgres:
		return connectPostgres(ctx, s)
	case kindKubernetes:
		return connectKubernetes(s)
	default:
		return connectAzure(ctx, s)
	}
}

// checkComponent finds mistakes in a component that need no server to be seen.
func checkComponent(c component, n names) error {
	if (c.kind == kindAzure || c.kind == kindKubernetes) && !withClouds {
		return leftOut(c, c.kind)
	}
	switch c.kind {
	case kindRedis:
		return checkRedis(c, n)
	case kindPostgres:
		_, err := parsePostgres(c)
		return err
	case kindKubernetes:
		return checkKubernetes(c, n)
	}
	return checkAzure(c)
}

// leftOut is the error for a component that needs a cloud's client, in a build without them.
func leftOut(c component, what string) error {
	return fmt.Errorf("component %s: this build leaves out %s; run the released binary isthmus-full, or build with -tags clouds", c.name, what)
}

// where is how errors call the server.
func (s settings) where() string {
	c := s.component
	switch c.kind {
	case kindRedis:
		return "redis " + redisHost(c)
	case kindPostgres:
		p, err := parsePostgres(c)
		if err != nil {
			return "postgres"
		}
		return fmt.Sprintf("postgres %s:%d, table %s", p.pool.ConnConfig.Host, p.pool.ConnConfig.Port, strings.Join(p.table, "."))
	case kindKubernetes:
		return fmt.Sprintf("ConfigMap %s/%s", kubernetesNamespace(), c.property("configMapName"))
	}
	return "azure " + azureHost(c)
}

// pairsOf is what Decode reads, in no order.
func pairsOf(held map[string]held) []configstore.Pair {
	pairs := make([]configstore.Pair, 0, len(held))
	for path, h := range held {
		pairs = append(pairs, h.pair(path))
	}
	return pairs
}
