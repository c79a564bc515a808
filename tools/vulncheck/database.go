package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// about is the first line of the stored copy. Each line after it is one advisory.
type about struct {
	Source     string `json:"source"`
	License    string `json:"license"`
	Changes    string `json:"changes"`
	Commit     string `json:"commit"`
	Date       string `json:"date"` // of the commit
	Advisories int    `json:"advisories"`
}

// dropped are fields of an advisory that no check reads; they are two thirds of its size.
var dropped = []string{"details", "references", "credits", "aliases", "related"}

// update writes the stored copy from a git repository of golang/vulndb, bare or not.
func update(repository, to string) error {
	commit, err := git(repository, "log", "-1", "--format=%H %cs")
	if err != nil {
		return err
	}
	archive, err := git(repository, "archive", "HEAD", "data/osv")
	if err != nil {
		return err
	}
	lines, err := advisories(archive)
	if err != nil {
		return err
	}
	hash, date, _ := strings.Cut(strings.TrimSpace(string(commit)), " ")
	first, err := json.Marshal(about{
		Source: "https://github.com/golang/vulndb", License: "CC-BY-4.0",
		Changes: "without the fields " + strings.Join(dropped, ", "),
		Commit:  hash, Date: date, Advisories: len(lines),
	})
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	for _, line := range append([][]byte{first}, lines...) {
		if _, err := z.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, packed.Bytes(), 0o644)
}

func git(repository string, args ...string) ([]byte, error) {
	out, err := exec.Command("git", append([]string{"-C", repository}, args...)...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("git %s: %s", args[0], bytes.TrimSpace(exit.Stderr))
	}
	return out, err
}

// advisories are those of an archive of data/osv, in the order of their names.
func advisories(archive []byte) (lines [][]byte, err error) {
	files := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if !strings.HasSuffix(header.Name, ".json") {
			continue
		}
		var fields map[string]json.RawMessage
		if err := json.NewDecoder(files).Decode(&fields); err != nil {
			return nil, fmt.Errorf("%s: %w", header.Name, err)
		}
		for _, name := range dropped {
			delete(fields, name)
		}
		line, err := json.Marshal(fields)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", header.Name, err)
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return nil, errors.New("no advisories in data/osv")
	}
	return lines, nil
}

// advisoryID is also a safe file name.
var advisoryID = regexp.MustCompile(`^GO-\d{4}-\d{4,}$`)

// unpack writes the stored copy into a folder, a file for each advisory. govulncheck reads
// that as a database.
func unpack(path, folder string) (a about, err error) {
	file, err := os.Open(path)
	if err != nil {
		return a, err
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		return a, fmt.Errorf("%s: %w", path, err)
	}
	lines := bufio.NewReader(z)
	for n := 0; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			if n-1 != a.Advisories {
				return a, fmt.Errorf("%s: %d advisories, and %d are announced", path, n-1, a.Advisories)
			}
			return a, nil
		}
		if err != nil {
			return a, fmt.Errorf("%s: %w", path, err)
		}
		if n == 0 {
			if err := json.Unmarshal(line, &a); err != nil {
				return a, fmt.Errorf("%s: %w", path, err)
			}
			continue
		}
		var entry struct{ ID string }
		if err := json.Unmarshal(line, &entry); err != nil || !advisoryID.MatchString(entry.ID) {
			return a, fmt.Errorf("%s: line %d is no advisory (%q): %w", path, n+1, entry.ID, err)
		}
		if err := os.WriteFile(filepath.Join(folder, entry.ID+".json"), line, 0o600); err != nil {
			return a, err
		}
	}
}
