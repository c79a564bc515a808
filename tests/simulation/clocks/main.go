// Clocks changes Go's package time, for the simulation alone: in a bubble of testing/synctest, whoever sets
// its hooks decides which wall clock and which monotonic clock a goroutine reads, and how fast its timers
// run. Go itself has one clock in a bubble, and no monotonic one. Clocks writes the changed files to a
// directory, and prints the path of what "go build -overlay" takes.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: clocks DIRECTORY")
		os.Exit(2)
	}
	path, err := write(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "clocks:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}

// hooks is the file that the package time gets.
const hooks = `package time

// Hooks of a bubble. All are set, or none.
var (
	BubbleNow   func(now int64) (wall, mono int64) // the clocks of this goroutine, in ns; now is the bubble's
	BubbleWait  func(d Duration) Duration          // how long a timer of this goroutine takes for d
	BubbleAfter func(f func()) func()              // f with the clock of this goroutine
)

// BubbleTime is the bubble's own time.
func BubbleTime() Time {
	now := runtimeNano()
	return withMono(now, now)
}

func withMono(wall, mono int64) Time {
	sec, nsec := wall/1e9+unixToInternal-minWall, wall%1e9
	return Time{hasMonotonic | uint64(sec)<<nsecShift | uint64(nsec), mono - startNano, Local}
}

func bubbled() bool { return BubbleNow != nil && runtimeIsBubbled() }

func wait(d Duration) Duration {
	if bubbled() {
		return BubbleWait(d)
	}
	return d
}

func after(f func()) func() {
	if bubbled() {
		return BubbleAfter(f)
	}
	return f
}
`

// changes are texts of each file and what stands there instead.
var changes = map[string][][2]string{
	"time.go": {{
		"func Now() Time {\n",
		"func Now() Time {\n\tif bubbled() {\n\t\treturn withMono(BubbleNow(runtimeNano()))\n\t}\n",
	}},
	"sleep.go": {
		{"t := runtimeNano() + int64(d)\n", "t := runtimeNano() + int64(wait(d))\n"},
		{"newTimer(when(d), 0, goFunc, f, nil)", "newTimer(when(d), 0, goFunc, after(f), nil)"},
	},
	"tick.go": {
		{"newTimer(when(d), int64(d), sendTime", "newTimer(when(d), int64(wait(d)), sendTime"},
		{"when(d), int64(d))\n", "when(d), int64(wait(d)))\n"},
	},
}

func write(dir string) (path string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	if err = os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	root := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time")
	replace := map[string]string{}
	put := func(name, text string) error {
		replace[filepath.Join(root, name)] = filepath.Join(dir, name)
		return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
	}
	for name, all := range changes {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return "", err
		}
		changed := string(text)
		for _, c := range all {
			if n := strings.Count(changed, c[0]); n != 1 {
				return "", fmt.Errorf("%s of %s has %q %d times, not once", name, runtime.Version(), c[0], n)
			}
			changed = strings.Replace(changed, c[0], c[1], 1)
		}
		if err := put(name, changed); err != nil {
			return "", err
		}
	}
	if err := put("bubble.go", hooks); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o644)
}
