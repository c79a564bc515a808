package embedded

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// childVariable makes the test's binary be another process that has a store open, and
// names what it does and with which file: "write:/path".
const childVariable = "ISTHMUS_EMBEDDED_TEST_CHILD"

// child does what childVariable says, and tells whether it says anything.
func child() bool {
	what, path, ok := strings.Cut(os.Getenv(childVariable), ":")
	if !ok {
		return false
	}
	if what == "limit" {
		// Files of this process grow to 256 KiB, as on a disk that is full by then.
		signal.Ignore(syscall.SIGXFSZ)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 256 << 10, Max: 256 << 10}); err != nil {
			fmt.Println("error", err)
			return true
		}
	}
	s, err := Open(path)
	if err != nil {
		fmt.Println("error", err)
		return true
	}
	if what == "hold" {
		fmt.Println("open")
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test lets go
	} else {
		writeOn(s)
	}
	_ = s.Close()
	return true
}

// writeOn writes three objects in each batch and tells of each batch, until it can't.
func writeOn(s *Store) {
	for n := 0; ; n++ {
		if _, err := s.Write(context.Background(), batch(n)...); err != nil {
			fmt.Println("error", err)
			return
		}
		fmt.Println("written", n)
	}
}

// batch writes n to three objects at once, and an object of its own.
func batch(n int) []configstore.Write {
	writes := []configstore.Write{{Object: &catalog.AppExport{
		App:   catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", n)},
		Allow: []catalog.Allow{{Cluster: "*", Namespace: strings.Repeat("n", 60)}},
	}}}
	for _, name := range []string{"east", "north", "west"} {
		writes = append(writes, configstore.Write{Object: &catalog.Cluster{Name: name, Network: fmt.Sprintf("n%d", n), StaleAfter: catalog.DefaultStaleAfter}})
	}
	return writes
}

// start runs a child and returns its output, line by line.
func start(t *testing.T, what, path string) (*exec.Cmd, *bufio.Scanner, io.Closer) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+what+":"+path)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewScanner(stdout), stdin
}

func TestKillNineLosesNothingAcknowledged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "isthmus.db")
	acknowledged := -1
	for round := range 3 {
		cmd, lines, _ := start(t, "write", path)
		for n := 0; n < 20+13*round && lines.Scan(); {
			n = written(t, lines.Text())
			acknowledged = max(acknowledged, n)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it had said before it was killed
			acknowledged = max(acknowledged, written(t, lines.Text()))
		}
		_ = cmd.Wait()
		if acknowledged < 20 {
			t.Fatalf("only batch %d was written before the kill", acknowledged)
		}
		checkBatches(t, path, acknowledged)
	}
}

func written(t *testing.T, line string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimPrefix(line, "written "))
	if err != nil {
		t.Fatalf("the child says %q", line)
	}
	return n
}

// checkBatches holds that every acknowledged batch is there, and each batch whole.
func checkBatches(t *testing.T, path string, acknowledged int) {
	t.Helper()
	s := open(t, path)
	defer s.Close()
	objects, refused, err := s.List(t.Context())
	if err != nil || len(refused) > 0 {
		t.Fatalf("list: refused %v, %v", refused, err)
	}
	networks, apps := map[string]bool{}, map[string]bool{}
	for _, o := range objects {
		switch o := o.Object.(type) {
		case *catalog.Cluster:
			networks[o.Network] = true
		case *catalog.AppExport:
			apps[o.App.ID] = true
		}
	}
	for n := range acknowledged + 1 {
		if !apps[fmt.Sprintf("app-%d", n)] {
			t.Errorf("batch %d was acknowledged and is not there", n)
		}
	}
	if len(networks) != 1 {
		t.Errorf("a batch is there in part: three objects that were written together are of %v", networks)
	}
	checkHistory(t, s, networks)
}

// checkHistory holds that the history of an object ends in what stands, and lacks
// nothing before that.
func checkHistory(t *testing.T, s *Store, standing map[string]bool) {
	t.Helper()
	past, err := s.History(t.Context(), eastKey, ObjectHistory)
	if err != nil || len(past) < 2 {
		t.Fatalf("history: %d versions, %v", len(past), err)
	}
	for i, p := range past {
		network := p.Object.(*catalog.Cluster).Network
		var n, after int
		_, _ = fmt.Sscanf(network, "n%d", &n)
		if i > 0 {
			_, _ = fmt.Sscanf(past[i-1].Object.(*catalog.Cluster).Network, "n%d", &after)
		}
		if i == 0 && !standing[network] || i > 0 && n != after-1 && after != 0 {
			t.Errorf("version %d of the history is %s after %d; what stands is %v", i, network, after, standing)
		}
	}
	checkPast(t, s)
}

func TestAFullDiskIsAnErrorAndNothingIsLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "isthmus.db")
	_, lines, _ := start(t, "limit", path)
	acknowledged, failure := -1, ""
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "error") {
			failure = lines.Text()
			break
		}
		acknowledged = written(t, lines.Text())
	}
	for _, want := range []string{"file too large", "nothing was written and what was there stands: make room or mend the disk", path} {
		if !strings.Contains(failure, want) {
			t.Errorf("the full disk says %q, want %q in it", failure, want)
		}
	}
	if acknowledged < 1 {
		t.Fatalf("nothing was written before the disk was full")
	}
	checkBatches(t, path, acknowledged)
}

func TestAnotherProcessHasTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "isthmus.db")
	_, lines, stdin := start(t, "hold", path)
	if !lines.Scan() || lines.Text() != "open" {
		t.Fatalf("the child says %q", lines.Text())
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), path+": another process has held it for 2s; stop that one") {
		t.Errorf("open: %v; want who has it and what to do", err)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path) // the child is going, and Open waits for it
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); {
		s, err = Open(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}
