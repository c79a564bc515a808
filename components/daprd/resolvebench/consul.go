package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// agent is a Consul agent in development mode, on loopback.
type agent struct {
	cmd     *exec.Cmd
	log     *os.File
	address string // of its HTTP API
}

func startConsul(ctx context.Context, binary, logFile string) (*agent, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, binary, "agent", "-dev", "-bind", "127.0.0.1", "-client", "127.0.0.1",
		"-http-port", ports[0], "-server-port", ports[1], "-serf-lan-port", ports[2], "-serf-wan-port", "-1",
		"-dns-port", "-1", "-grpc-port", "-1", "-grpc-tls-port", "-1", "-log-level", "warn")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", binary, err), log.Close())
	}
	a := &agent{cmd: cmd, log: log, address: "127.0.0.1:" + ports[0]}
	if err := a.await(ctx); err != nil {
		text, _ := os.ReadFile(logFile)
		return nil, errors.Join(err, a.stop(), fmt.Errorf("its log ends with: %s", text[max(len(text)-2000, 0):]))
	}
	return a, nil
}

// await waits until the agent has elected itself.
func (a *agent) await(ctx context.Context) error {
	for limit := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		leader, err := get(ctx, "http://"+a.address+"/v1/status/leader")
		if err == nil && len(leader) > len(`""`) {
			return nil
		}
		if time.Now().After(limit) || ctx.Err() != nil {
			return errors.Join(errors.New("consul has not become ready within 30 s"), err)
		}
	}
}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	return string(text), errors.Join(err, answer.Body.Close())
}

// stop ends the agent by a signal, and ignores its exit status.
func (a *agent) stop() error {
	if err := a.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = a.cmd.Wait()
	return a.log.Close()
}

// freePorts returns ports where nothing listens.
func freePorts(n int) (ports []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // all at the end, so that no port is returned twice
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}
