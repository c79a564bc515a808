package system

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

var (
	block    = regexp.MustCompile("(?s)```(yaml|sh|console)\n(.*?)```")
	saved    = regexp.MustCompile("`([a-z/]+\\.yaml)`")
	portText = regexp.MustCompile(`\b(50001|8090|7400|15443|7453|7480|17400|25443|17480|8081|3600|50006|9096|3500|50005|9095)\b`)
)

// TestTheTutorialOfTwoClusters does what docs/tutorials/two-clusters.md says, on other ports
// and with an app of ours, until the call is answered by the other cluster.
func TestTheTutorialOfTwoClusters(t *testing.T) {
	needsBinaries(t)
	text, err := os.ReadFile("../../docs/tutorials/two-clusters.md")
	if err != nil {
		t.Fatal(err)
	}
	ports := map[string]string{}
	page := portText.ReplaceAllStringFunc(string(text), func(port string) string {
		if ports[port] == "" {
			free, err := sandbox.FreePort()
			if err != nil {
				t.Fatal(err)
			}
			ports[port] = strconv.Itoa(free)
		}
		return ports[port]
	})
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello from east") }))
	defer app.Close()
	page = strings.ReplaceAll(page, ports["8081"], app.URL[strings.LastIndex(app.URL, ":")+1:])
	r := &reader{t: t, dir: t.TempDir(), server: "127.0.0.1:" + ports["7400"]}
	for _, folder := range []string{"west", "east"} {
		if err := os.Mkdir(filepath.Join(r.dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range block.FindAllStringSubmatchIndex(page, -1) {
		switch language, text := page[at[2]:at[3]], page[at[4]:at[5]]; {
		case language == "yaml":
			names := saved.FindAllStringSubmatch(page[:at[0]], -1)
			file := names[len(names)-1][1]
			r.save(file, text)
			if file == "west/daprd.yaml" {
				r.save("east/daprd.yaml", strings.NewReplacer("cluster: west", "cluster: east", ports["7400"], ports["17400"]).Replace(text))
			}
		case language == "console":
			r.commands(text)
		case strings.Contains(text, "sentry --config"): // which has more ports than the page names
			r.start(strings.TrimSpace(text) + " --metrics-port 0 --port " + ports["50001"])
		case !strings.Contains(text, "make build") && !strings.Contains(text, "python3"):
			r.start(text)
		}
	}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		answer, err := http.Get("http://127.0.0.1:" + ports["3500"] + "/v1.0/invoke/orders/method/hello")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "hello from east" {
			return fmt.Errorf("%s %q, %v", answer.Status, body, err)
		}
		return nil
	})
	http.DefaultClient.CloseIdleConnections()
}

// reader does what a page says, in a folder of its own.
type reader struct {
	t       *testing.T
	dir     string
	server  string // the one of west: where it listens by default, on the page
	started int
}

func (r *reader) save(file, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, file), []byte(text), 0o644); err != nil {
		r.t.Fatalf("the page does not say where to save\n%s\n%v", text, err)
	}
}

// script is a shell script that types commands in the folder, with our programs on its path.
func (r *reader) script(text string) string {
	r.t.Helper()
	var programs []string
	for _, name := range []string{"isthmus", "daprd", "sentry"} {
		path, err := sandbox.Binary(name)
		if err != nil {
			r.t.Fatal(err)
		}
		programs = append(programs, filepath.Dir(path))
	}
	return "set -e\ncd '" + r.dir + "'\nPATH=" + strings.Join(programs, ":") + ":$PATH\nexport ISTHMUS_SERVER=" + r.server + "\n" + text
}

// start types commands, of which the last goes on until the test ends.
func (r *reader) start(text string) {
	r.t.Helper()
	r.awaits(text)
	text = strings.TrimSpace(strings.ReplaceAll(text, "\\\n", ""))
	last := strings.LastIndex(text, "\n") + 1
	r.started++
	process, err := sandbox.Start(sandbox.Command{
		Name: fmt.Sprintf("tutorial-%d", r.started), Path: "/bin/sh", LogDir: r.dir,
		Args: []string{"-c", r.script(text[:last] + "exec " + text[last:])},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if r.t.Failed() {
			r.t.Logf("%s\n%s", text[last:], process.Tail(20))
		}
		if err := process.Kill(); err != nil {
			r.t.Error(err)
		}
	})
}

// awaits waits for the roots that commands read: Sentry has just been started.
func (r *reader) awaits(text string) {
	if !strings.Contains(text, "certs/ca.crt") && !strings.Contains(text, "isthmus.yaml") {
		return
	}
	meshtest.Eventually(r.t, meshtest.Patience, func() error {
		_, err := os.Stat(filepath.Join(r.dir, "certs", "ca.crt"))
		return err
	})
}

// commands types what follows a prompt, but for calls of curl, until all of it succeeds.
func (r *reader) commands(text string) {
	var lines []string
	for line := range strings.Lines(text) {
		if command, ok := strings.CutPrefix(line, "$ "); ok && !strings.HasPrefix(command, "curl") {
			lines = append(lines, command)
		}
	}
	text = strings.Join(lines, "")
	if !strings.Contains(text, "ISTHMUS_SENTRY_ADDRESS") {
		return // looks only
	}
	meshtest.Eventually(r.t, meshtest.Patience, func() error {
		if out, err := exec.Command("/bin/sh", "-c", r.script(text)).CombinedOutput(); err != nil {
			time.Sleep(100 * time.Millisecond) // the services start meanwhile
			return fmt.Errorf("%s\n%w\n%s", text, err, out)
		}
		return nil
	})
}
