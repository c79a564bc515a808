package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// results are what was measured of a server: one value for each round.
type results struct {
	rate     measure.Samples // queries a second, as many as it can
	cpu      measure.Samples // CPU µs of a query then
	quietCPU measure.Samples // CPU µs of a query at quietRate
	p50, p99 measure.Samples // µs, at quietRate
	lost     int             // queries without an answer
	resident uint64          // bytes, after the last round
}

// quietRate is how many queries a second a quiet server is asked.
const quietRate = 10_000

// clients is how many sockets the queries come from, and threads how many threads of
// dnsperf they are shared out among at quietRate.
const (
	clients = "16"
	threads = "2"
)

// measure does one round.
func (s *stage) measure(ctx context.Context, of *server, each time.Duration) error {
	flat, took, err := s.load(ctx, of, each, "-q", "200")
	if err != nil {
		return err
	}
	of.rate = append(of.rate, flat.rate)
	of.cpu = append(of.cpu, micros(took)/flat.completed)
	quiet, took, err := s.load(ctx, of, each, "-q", "200", "-Q", strconv.Itoa(quietRate), "-T", threads, "-v")
	if err != nil {
		return err
	}
	of.quietCPU = append(of.quietCPU, micros(took)/quiet.completed)
	of.p50 = append(of.p50, 1e6*measure.Median(quiet.latencies))
	of.p99 = append(of.p99, 1e6*measure.Quantile(quiet.latencies, .99))
	of.lost += flat.lost + quiet.lost
	of.resident = 0
	for _, pid := range measure.Family(of.PID()) {
		now, _ := measure.Resident(pid)
		of.resident += now
	}
	return nil
}

func micros(d time.Duration) float64 { return float64(d) / 1e3 }

// load has dnsperf ask a server, and returns what it says and the server's CPU time.
func (s *stage) load(ctx context.Context, of *server, each time.Duration, more ...string) (said *dnsperf, took time.Duration, err error) {
	if err := of.Unexpected(); err != nil {
		return nil, 0, err
	}
	args := append([]string{
		"-s", "127.0.0.1", "-p", strconv.Itoa(of.Port), "-d", s.path("queries"),
		"-l", fmt.Sprintf("%.0f", max(each.Seconds(), 1)), "-c", clients,
	}, more...)
	var out []byte
	took, err = measure.Spent(of.PID(), func() (err error) {
		out, err = exec.CommandContext(ctx, s.dnsperf, args...).Output()
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("dnsperf %s: %w", strings.Join(args, " "), err)
	}
	said, err = readDnsperf(out)
	return said, took, err
}

// dnsperf is what dnsperf says of a load.
type dnsperf struct {
	completed float64
	rate      float64 // a second
	lost      int
	latencies []float64 // s; with -v
}

var (
	answered = regexp.MustCompile(`^> NOERROR \S+ \S+ ([0-9.]+)$`)
	figure   = regexp.MustCompile(`^\s+(Queries completed|Queries lost|Queries per second|Response codes):\s+(\S+)`)
)

// readDnsperf reads dnsperf's output. Anything but addresses for answers is an error: it
// would be compared with what costs more.
func readDnsperf(out []byte) (*dnsperf, error) {
	d := &dnsperf{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		if m := answered.FindSubmatch(lines.Bytes()); m != nil {
			seconds, err := strconv.ParseFloat(string(m[1]), 64)
			if err != nil {
				return nil, fmt.Errorf("read dnsperf's %q: %w", lines.Text(), err)
			}
			d.latencies = append(d.latencies, seconds)
			continue
		}
		m := figure.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		value, err := strconv.ParseFloat(m[2], 64)
		switch m[1] {
		case "Queries completed":
			d.completed = value
		case "Queries lost":
			d.lost = int(value)
		case "Queries per second":
			d.rate = value
		case "Response codes":
			if err = nil; m[2] != "NOERROR" || !strings.Contains(lines.Text(), "(100.00%)") {
				return nil, fmt.Errorf("not every answer is NOERROR: %s", strings.TrimSpace(lines.Text()))
			}
		}
		if err != nil {
			return nil, fmt.Errorf("read dnsperf's %q: %w", lines.Text(), err)
		}
	}
	if d.completed == 0 {
		return nil, errors.New("no query was answered")
	}
	return d, lines.Err()
}
