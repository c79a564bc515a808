// Recording runs a command and draws a terminal with its output: an animated SVG that
// browsers play, in light and dark. "make recording" makes the one of the demo.
//
//	go run ./recording -o FILE [-hide DIRECTORY] COMMAND [ARGUMENT...]
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

func main() {
	out := flag.String("o", "recording.svg", "`file` for the picture")
	hide := flag.String("hide", "", "`directory` of this machine that the picture does not show")
	flag.Parse()
	if err := record(*out, *hide, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

// record runs a command and writes the picture of its output.
func record(file, hide string, command []string) error {
	if len(command) == 0 {
		return errors.New("name a command to run")
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	printed, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	text := string(printed)
	if hide != "" {
		text = strings.ReplaceAll(text, strings.TrimSuffix(hide, "/")+"/", "")
	}
	drawn, err := picture(text)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(drawn), 0o644)
}
