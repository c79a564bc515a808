package show

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

// Path is the path that a format picks from JSON, as kubectl has it: also without braces.
func (f Format) Path() (path string, ok bool) {
	path, ok = strings.CutPrefix(string(f), pathFormat)
	if ok && !strings.ContainsAny(path, "{}") {
		path = "{" + "." + strings.TrimPrefix(path, ".") + "}"
	}
	return path, ok
}

// CheckPath tells what is wrong with the path of a format.
func CheckPath(f Format) error {
	path, ok := f.Path()
	switch {
	case !ok:
		return nil
	case path == "{.}" && string(f) == pathFormat:
		return fmt.Errorf("%s has no path; write one such as jsonpath={.metadata.name}", f)
	}
	if err := jsonpath.New("").Parse(path); err != nil {
		return fmt.Errorf("%s: %w; write one such as jsonpath={.metadata.name}", f, err)
	}
	return nil
}

// pick writes what a path picks from JSON. A field that is not there is nothing.
func pick(w io.Writer, path string, text []byte) error {
	var all any
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	p := jsonpath.New("").AllowMissingKeys(true)
	if err := p.Parse(path); err != nil {
		return err
	}
	var picked strings.Builder
	if err := p.Execute(&picked, all); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	out := picked.String()
	if !strings.HasSuffix(out, "\n") {
		out += "\n"
	}
	_, err := io.WriteString(w, out)
	return err
}
