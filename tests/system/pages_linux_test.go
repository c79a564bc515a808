package system

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

var block = regexp.MustCompile("(?ms)^```(sh|console)\n(.*?)^```$")

// pagePatience is how long all commands of a page may take on a slow, busy machine.
const pagePatience = 5 * time.Minute

// TestTheReadme types the commands of README.md, as they stand there, until a call from one
// cluster to the other is answered. They are few, and nothing is to be written.
func TestTheReadme(t *testing.T) {
	t.Parallel()
	readme := pageText(t, "README.md")
	_, section, _ := strings.Cut(readme, "## Call from one cluster to another")
	commands := lines(block.FindStringSubmatch(section)[2])
	if most := 8; len(commands) > most {
		t.Errorf("%d commands until the first call; want at most %d", len(commands), most)
	}
	if !strings.Contains(section, "`./stop` stops everything") {
		t.Error("the page does not say how to stop")
	}
	var script strings.Builder
	for _, command := range commands {
		script.WriteString(untilDone(command))
	}
	script.WriteString("./stop\n! ps -e -o comm= | grep -E '^(sentry|isthmus|daprd|example-app)'\n") // nothing is left
	script.WriteString("./start >/dev/null && ./stop\n")                                             // and again
	out := typeIn(t, script.String())
	if !strings.Contains(section, "The answer is `hello from east`.") || !slices.Contains(lines(out), "hello from east") {
		t.Errorf("the answer is not what the page says\n%s", out)
	}
	for _, said := range []string{"cluster east, resolver service 127.0.0.1:17400 (context east)", "cluster west, resolver service 127.0.0.1:7400 (context west)"} {
		if !slices.Contains(lines(out), said) {
			t.Errorf("apply did not say %q", said)
		}
	}
}

// TestTheTutorialOfTwoClusters does what docs/tutorials/two-clusters.md says: blocks of sh are
// programs that go on, each in a terminal of its own, and the rest is typed beside them.
func TestTheTutorialOfTwoClusters(t *testing.T) {
	t.Parallel()
	page := pageText(t, "docs/tutorials/two-clusters.md")
	start := oneLine(pageText(t, "examples/two-clusters/start"))
	var script strings.Builder
	for _, found := range block.FindAllStringSubmatch(page, -1) {
		if found[1] == "sh" {
			typed := lines(strings.ReplaceAll(strings.TrimSpace(found[2]), "\\\n", ""))
			program := typed[len(typed)-1]
			if !strings.Contains(start, oneLine(program)) {
				t.Errorf("./start has another command than the page:\n%s", program)
			}
			// The services and the sidecars read the roots that Sentry writes.
			script.WriteString("until [ -f certs/ca.crt ] || [ -z \"$sentry\" ]; do sleep 0.1; done; sentry=started\n")
			script.WriteString("(\n" + strings.Join(typed[:len(typed)-1], "\n") + "\n" + program + "\n) >>output.log 2>&1 &\n")
			continue
		}
		for _, line := range lines(found[2]) {
			if command, typed := strings.CutPrefix(line, "$ "); typed {
				script.WriteString(untilDone(command))
			}
		}
	}
	out := typeIn(t, script.String())
	if !slices.Contains(lines(out), "hello from east") {
		t.Errorf("no answer\n%s", out)
	}
}

// TestTheQuickstart types docs/tutorials/quickstart.md: the apps of each language, one in each cluster.
func TestTheQuickstart(t *testing.T) {
	t.Parallel()
	programstest.Need(t, "node", "python3")
	modules, err := filepath.Abs("../../bin/dapr-js/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	cache, modcache, _ := strings.Cut(strings.TrimSpace(string(caches)), "\n")
	script := fmt.Sprintf("export NODE_PATH=%s GOCACHE=%s GOMODCACHE=%s\n", modules, cache, modcache)
	page := pageText(t, "docs/tutorials/quickstart.md")
	languages := 0
	for _, found := range block.FindAllStringSubmatch(page, -1) {
		for _, line := range lines(found[2]) {
			// The shell has no network to fetch packages from; those of the tests are linked.
			command := strings.ReplaceAll(strings.TrimPrefix(line, "$ "), "npm install", "ln -s $NODE_PATH node_modules")
			script += untilDone(command)
			languages += strings.Count(command, "./run ")
		}
	}
	_, printed, _ := strings.Cut(page, "```text\n")
	printed, _, _ = strings.Cut(printed, "```")
	out := typeIn(t, script)
	for _, line := range lines(printed) {
		for _, line := range []string{line, strings.Replace(line, "passed", "received", 1)} { // by the callee
			if n := strings.Count(out, line+"\n"); n != languages {
				t.Errorf("%q is printed %d times, want %d\n%s", line, n, languages, out)
			}
		}
	}
}

func pageText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func lines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }

// oneLine has single blanks alone, and no breaks of lines.
func oneLine(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "\\\n", " ")), " ")
}

// untilDone types a command again until it succeeds, where what a reader would wait for may
// not be there yet: a peer that is connected, or a service that listens.
func untilDone(command string) string {
	for _, begin := range []string{"isthmus ", "curl "} {
		if strings.HasPrefix(command, begin) {
			return "until " + command + "\ndo sleep 0.2; done\n"
		}
	}
	return command + "\n"
}

// typeIn types commands into a shell, in a copy of the repository, and returns what they
// print. The copy has the programs that make would build. The shell has a network of its own,
// so that the ports of the page are free, and sees no other processes: when it ends, so does
// whatever it has started.
func typeIn(t *testing.T, script string) string {
	t.Helper()
	needsBinaries(t)
	own := []string{"--net", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if os.Getuid() != 0 {
		own = append(own, "--user", "--map-root-user")
	}
	if out, err := exec.Command("unshare", append(own, "ip", "link", "set", "lo", "up")...).CombinedOutput(); err != nil {
		if os.Getuid() == 0 {
			t.Fatalf("no network of its own can be had: %v\n%s", err, out)
		}
		t.Skipf("this user can't have a network of their own: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), pagePatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", append(own, "sh", "-c", "set -e\nip link set lo up\n"+script)...)
	cmd.Dir = repository(t)
	// make is what builds the programs, which the copy has; its target must be one.
	cmd.Env = append(cleanEnvironment(), "PATH="+filepath.Join(cmd.Dir, "tools")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, logs(filepath.Join(cmd.Dir, "examples", "two-clusters")))
	}
	return string(out)
}

// repository makes a copy of the repository, as far as the pages need it.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	example := filepath.Join(dir, "examples", "two-clusters")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.CopyFS(filepath.Join(dir, "examples"), os.DirFS("../../examples")))
	for _, made := range []string{"certs", "log", "run", "west/data", "east/data"} { // by somebody who tried it here
		must(os.RemoveAll(filepath.Join(example, made)))
	}
	must(os.MkdirAll(filepath.Join(dir, "bin"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "go.mod"), nil, 0o600))
	for _, name := range []string{"isthmus", "daprd", "sentry"} {
		path, err := sandbox.Binary(name)
		must(err)
		must(os.Symlink(path, filepath.Join(dir, "bin", name)))
	}
	build := func(output, path string) {
		if out, err := exec.Command("go", "build", "-o", output, path).CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", path, err, out)
		}
	}
	build(filepath.Join(dir, "bin", "example-app"), "../../examples/two-clusters/app")
	maker := exec.Command("make", "-n", "-C", "../..", "example")
	maker.Env = append(os.Environ(), "MAKEFLAGS=") // what the make that runs the tests was given is not for this one
	plan, err := maker.CombinedOutput()
	for _, name := range []string{"daprd", "sentry"} {
		if p, ok := programs.Named(name); !ok || p.Need != programs.Demo {
			t.Errorf("what the demo runs has no %s", name)
		}
	}
	for _, program := range []string{"/bin/isthmus ", "/have demo", "/bin/example-app "} {
		if err != nil || !strings.Contains(string(plan), program) {
			t.Errorf("make example does not build %s: %v\n%s", program, err, plan)
		}
	}
	must(os.Mkdir(filepath.Join(dir, "tools"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "tools", "make"), []byte("#!/bin/sh\n[ \"$*\" = example ]\n"), 0o755))
	return dir
}

// cleanEnvironment is that of a reader with other settings than the example wants: what names
// a service, and a namespace. The page's own commands must win.
func cleanEnvironment() []string {
	return []string{"HOME=/nonexistent", "LANG=C", "NAMESPACE=other", "ISTHMUS_SERVER=127.0.0.1:1", "ISTHMUS_CLUSTER=other"}
}

// logs are the last lines of what the programs have logged.
func logs(dir string) string {
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".log" {
			return err
		}
		text, err := os.ReadFile(path)
		last := lines(string(text))
		all.WriteString("--- " + path + "\n" + strings.Join(last[max(0, len(last)-20):], "\n") + "\n")
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		all.WriteString(err.Error())
	}
	return all.String()
}
