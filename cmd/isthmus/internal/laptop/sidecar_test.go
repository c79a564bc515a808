package laptop

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Dapr's own daprd is refused before the invitation is used. Any program of Go says what it is made of.
func TestADaprdHasIsthmus(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if path, err := FindDaprd(own); err != nil || path != own {
		t.Errorf("%s: %s, %v", own, path, err)
	}
	other, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := FindDaprd(other); err == nil || !strings.Contains(err.Error(), "without Isthmus") {
		t.Errorf("%s: %v", other, err)
	}
}
