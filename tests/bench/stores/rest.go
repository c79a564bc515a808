package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// count is what a service has asked of its store up to some time.
type count struct {
	requests    int
	connections map[string]traffic // by the service's own end
	err         error              // why the connections are not known
}

// traffic is what the kernel has counted of a connection: segments with data that were
// sent, and bytes both ways.
type traffic struct{ sends, sent, received int }

// calm is how long a service is left alone before it counts as being at rest.
const calm = 2 * time.Second

// restAll counts what all services ask of their stores when nothing happens.
func restAll(ctx context.Context, p plan, all []*result) error {
	if len(all) == 0 || p.rest == 0 {
		return nil
	}
	measure.Progress("counting what is asked at rest, for %s", p.rest)
	for i, wait := range []time.Duration{calm, p.rest} {
		if err := measure.Pause(ctx, wait); err != nil {
			return err
		}
		for _, r := range all {
			var err error
			if r.at[i], err = r.count(ctx); err != nil {
				return fmt.Errorf("%s: count requests: %w", r.name, err)
			}
		}
	}
	for _, r := range all {
		r.rss, _ = measure.Resident(r.service.PID())
	}
	return nil
}

func (r *result) count(ctx context.Context) (c count, err error) {
	if r.subject.port != 0 {
		c.connections, c.err = connections(ctx, r.service.PID(), r.subject.port)
	}
	if r.subject.requests != nil {
		c.requests, err = r.subject.requests(ctx)
	}
	return c, err
}

var (
	pairPattern  = regexp.MustCompile(`^\s*\d+\s+\d+\s+(\S+)\s+(\S+)`)
	valuePattern = regexp.MustCompile(`\b(bytes_sent|bytes_received|data_segs_out):(\d+)`)
)

// connections are those of a process to a port, as ss (of iproute2) knows them.
func connections(ctx context.Context, pid, port int) (map[string]traffic, error) {
	out, err := exec.CommandContext(ctx, "ss", "-tinpHO", "state", "established", fmt.Sprintf("dport = :%d", port)).Output()
	if err != nil {
		return nil, fmt.Errorf("ask ss: %w", err)
	}
	return parseConnections(string(out), pid), nil
}

func parseConnections(text string, pid int) map[string]traffic {
	found := map[string]traffic{}
	for line := range strings.Lines(text) {
		ends := pairPattern.FindStringSubmatch(line)
		if ends == nil || !strings.Contains(line, fmt.Sprintf("pid=%d,", pid)) {
			continue
		}
		var t traffic
		for _, match := range valuePattern.FindAllStringSubmatch(line, -1) {
			n, _ := strconv.Atoi(match[2])
			switch match[1] {
			case "bytes_sent":
				t.sent = n
			case "bytes_received":
				t.received = n
			case "data_segs_out":
				t.sends = n
			}
		}
		found[ends[1]] = t
	}
	return found
}

// since is the traffic after an earlier count. What a connection carried that ended in
// between is lost, but for those that began and are still there.
func (c count) since(before count) (t traffic) {
	for end, now := range c.connections {
		was := before.connections[end]
		t.sends += now.sends - was.sends
		t.sent += now.sent - was.sent
		t.received += now.received - was.received
	}
	return t
}

// row is a store's in the table of starts and rest.
func (r *result) row(rested time.Duration) []string {
	row := []string{r.name, measure.Millis(measure.Median(r.ready)), measure.MiB(r.rss)}
	minute := func(n int) string {
		return strconv.FormatFloat(float64(n)*float64(time.Minute)/float64(rested), 'f', 0, 64)
	}
	switch {
	case r.subject.port == 0 || rested == 0:
		return append(row, "—", "—", "—", "—", "—")
	case r.subject.requests == nil:
		row = append(row, "—")
	default:
		row = append(row, minute(r.at[1].requests-r.at[0].requests))
	}
	if r.at[1].err != nil || r.at[0].err != nil {
		return append(row, "?", "?", "?", "?")
	}
	t := r.at[1].since(r.at[0])
	return append(row, strconv.Itoa(len(r.at[1].connections)), minute(t.sends), minute(t.sent), minute(t.received))
}
