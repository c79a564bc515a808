package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// Console is a running "isthmus console" of a cluster.
type Console struct {
	*Process
	Address string // host:port
}

// Console starts the console of a cluster, and waits until one can enter.
func (c *Cluster) Console(ctx context.Context, args ...string) (*Console, error) {
	binary, err := Binary("isthmus")
	if err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	at := loopback(port)
	p, err := c.s.run(ctx, Command{
		Name: "console-" + c.Name, Path: binary, LogDir: c.s.dir, ReadyURL: "http://" + at + "/assets/console.css",
		Args: append([]string{"console", "--listen", at}, args...), Env: c.CommandLine(),
	})
	if err != nil {
		return nil, err
	}
	return &Console{p, at}, nil
}

// URL is where one browser can enter: the newest that the console has printed.
func (c *Console) URL(ctx context.Context) (string, error) {
	entry := regexp.MustCompile(regexp.QuoteMeta("http://"+c.Address+"/enter?key=") + `\S+`)
	for {
		text, err := os.ReadFile(c.LogFile())
		if err != nil {
			return "", err
		}
		if all := entry.FindAllString(string(text), -1); len(all) > 0 {
			return all[len(all)-1], nil
		}
		if ended(c.Done()) || !live.Sleep(ctx, 20*time.Millisecond) {
			return "", errors.Join(fmt.Errorf("%s printed no URL: %s", c.Name(), c.Tail(5)), ctx.Err())
		}
	}
}
