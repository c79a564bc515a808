package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

const demoProgram = "isthmus-demo"

func newDemo() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Start two clusters on this machine and show what Isthmus does",
		Long: `Run the program isthmus-demo, which starts two clusters on this machine and shows what Isthmus does:
the one beside isthmus, or on the PATH. "make demo" builds it in a clone, with the programs that it runs.`,
		Example: `  isthmus demo
  isthmus demo --once`,
		DisableFlagParsing: true, // flags are the program's
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := findDemo()
			if err != nil {
				return err
			}
			return syscall.Exec(path, append([]string{demoProgram}, args...), os.Environ())
		},
	}
}

func findDemo() (string, error) {
	var beside string
	if self, err := os.Executable(); err == nil {
		beside = filepath.Join(filepath.Dir(self), demoProgram)
		if path, err := exec.LookPath(beside); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(demoProgram)
	if err != nil {
		return "", fmt.Errorf("the demo is a program of its own, and neither %s is there nor %s on the PATH; get a clone of this version, and run: make demo", beside, demoProgram)
	}
	return path, nil
}
