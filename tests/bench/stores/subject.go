package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// kind is a sort of store that can be measured. Its start keeps its files in dir, and
// fails with sandbox.ErrNoBinary where this machine has no such server.
type kind struct {
	name  string
	start func(ctx context.Context, dir string) (*subject, error)
}

// kinds are all, in the order of the table. What is busiest at rest comes last, since
// every server stays up to the end.
var kinds = []kind{
	{"embedded", startEmbedded},
	{"file", startFile},
	{"consul", startConsul},
	{"etcd", startEtcd},
	{"dapr/redis", startRedis},
	{"dapr/postgres", startPostgres},
	{"kubernetes", startKubernetes},
}

// subject is one store on its running server.
type subject struct {
	settings map[string]any // the store's part of isthmus.yaml

	// fill puts objects into the empty store, before any service runs.
	fill func(ctx context.Context, objects []catalog.Object) error

	// put writes an object past the service, with the store's own client, as somebody
	// would by hand. It is nil where only the service can write.
	put func(ctx context.Context, object catalog.Object) error

	// watch is the smallest program that watches an object with the store's own client.
	// It calls seen with the object's bytes when it begins, and then when they change.
	// It is nil where nobody but the service can watch.
	watch func(ctx context.Context, key catalog.Key, seen func([]byte)) error

	// requests is how many requests of the service the server has counted so far. It is
	// nil where there is no server, or it does not count.
	requests func(ctx context.Context) (int, error)

	port  int // where the server listens; 0 without one
	close func() error
}

// portOf is the port of host:port.
func portOf(address string) int {
	_, port, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(port)
	return n
}

// counter adds up a server's own counters.
type counter struct {
	client *http.Client
	url    string         // of the server's metrics, in Prometheus' text
	series *regexp.Regexp // of those that count the service's requests, up to the value
}

func (c counter) requests(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return 0, err
	}
	answer, err := c.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", c.url, answer.Status)
	}
	return c.sum(string(text))
}

var errNoCounter = errors.New("no such counter")

func (c counter) sum(metrics string) (int, error) {
	sum, found := 0., false
	for line := range strings.Lines(metrics) {
		match := c.series.FindStringIndex(line)
		if match == nil {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[match[1]:]), 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %q: %w", c.url, line, err)
		}
		sum, found = sum+value, true
	}
	if !found {
		return 0, fmt.Errorf("%s: %w as %s", c.url, errNoCounter, c.series)
	}
	return int(sum), nil
}
