package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestTheURLThatWorksOnceIsNoArgument of the browser, which every user of the machine could read.
func TestTheURLThatWorksOnceIsNoArgument(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	program := map[bool]string{true: "open", false: "xdg-open"}[runtime.GOOS == "darwin"]
	script := "#!/bin/sh\necho \"$@\" > arguments\nls -l \"$1\" > mode\ncat \"$1\" > page.new\nmv page.new page\n"
	if err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\ncd "+dir+"\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	const url = "http://127.0.0.1:8250/enter?key=a-secret"
	done := openBrowser(cmd, url)
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(dir, name))
		return string(text)
	}
	for end := time.Now().Add(time.Minute); read("page") == "" && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	if !strings.Contains(read("page"), `content="0;url=`+url+`"`) {
		t.Errorf("the browser is led to %q", read("page"))
	}
	arguments := read("arguments")
	if arguments == "" || strings.Contains(arguments, "a-secret") || !strings.HasPrefix(read("mode"), "-rw-------") {
		t.Errorf("the browser got %q, of mode %s", arguments, read("mode"))
	}
	done()
	if _, err := os.Stat(strings.TrimSpace(arguments)); !os.IsNotExist(err) {
		t.Errorf("%s is left behind: %v", arguments, err)
	}
}
