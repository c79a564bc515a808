package process

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// predecessorWait is how long a service waits for one that is shutting down to let go of
// its dataDir.
const predecessorWait = 2 * time.Second

// DataDir is the directory of a service, which those of other clusters and its replicas may share.
type DataDir struct {
	Path    string
	Cluster string
	Replica string // this one's name; empty where there is one service
}

// Own is the path of a file or directory of this service's own: each cluster, and each of
// its replicas, has another.
func (d DataDir) Own(kind string) string {
	name := kind + "-" + d.Cluster
	if d.Replica != "" {
		name += "-" + url.PathEscape(d.Replica)
	}
	return filepath.Join(d.Path, name)
}

// Hold makes the directory and keeps other services of the same cluster and name out of
// it until release is called, or the process ends however it does: two would write over
// what the other keeps. Where the directory can't be written to, or its file system knows no
// locks, nobody is kept out, and the log says so.
func (d DataDir) Hold(log *slog.Logger) (release func() error, err error) {
	nothing := func() error { return nil }
	unlocked := func(err error) {
		log.Warn("dataDir can't be locked: see that no other service of this cluster has the same one", "dataDir", d.Path, "err", err)
	}
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return nothing, fmt.Errorf("dataDir: %w; make it, or write another in isthmus.yaml", err)
	}
	f, err := os.OpenFile(d.Own("service")+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		unlocked(err)
		return nothing, nil
	}
	for end := time.Now().Add(predecessorWait); ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return f.Close, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			unlocked(fmt.Errorf("lock %s: %w", f.Name(), err))
			return f.Close, nil
		case time.Now().After(end):
			return nothing, errors.Join(fmt.Errorf("dataDir: %s: another service of cluster %s has held it for %s; stop that one, or write another dataDir in isthmus.yaml",
				d.Path, d.Cluster, predecessorWait), f.Close())
		}
		time.Sleep(20 * time.Millisecond)
	}
}
