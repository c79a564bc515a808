// Command npm puts the packages of a package-lock.json below a directory, as "npm ci
// --ignore-scripts" does. It needs neither npm nor Node: the packages are files of JavaScript.
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// most bounds a package, in bytes.
const most = 64 << 20

// lock is what is read of a package-lock.json, of version 2 or 3.
type lock struct {
	Packages map[string]struct {
		Version   string `json:"version"`
		Integrity string `json:"integrity"` // "sha512-" and the hash in base64
	} `json:"packages"` // by folder
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: npm PACKAGE-LOCK DIRECTORY")
		os.Exit(2)
	}
	if err := install(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "npm:", err)
		os.Exit(1)
	}
}

func install(file, into string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var l lock
	if err := json.Unmarshal(text, &l); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	registry := strings.TrimSuffix(cmp.Or(os.Getenv("npm_config_registry"), "https://registry.npmjs.org"), "/")
	client := &http.Client{Timeout: 2 * time.Minute}
	for folder, p := range l.Packages {
		if folder == "" { // the one that needs the others
			continue
		}
		name := folder[strings.LastIndex(folder, "node_modules/")+len("node_modules/"):]
		url := fmt.Sprintf("%s/%s/-/%s-%s.tgz", registry, name, path.Base(name), p.Version)
		archive, err := get(client, url)
		if err == nil {
			err = check(archive, p.Integrity)
		}
		if err == nil {
			err = unpack(archive, filepath.Join(into, filepath.FromSlash(folder)))
		}
		if err != nil {
			return fmt.Errorf("%s: %w; npm_config_registry names another registry", url, err)
		}
	}
	return nil
}

// get downloads a file, and tries again where that may help.
func get(client *http.Client, url string) (body []byte, err error) {
	for try := range 3 {
		time.Sleep(time.Duration(try) * 2 * time.Second)
		var answer *http.Response
		if answer, err = client.Get(url); err != nil {
			continue
		}
		body, err = io.ReadAll(io.LimitReader(answer.Body, most))
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			err = errors.New(answer.Status)
		}
		if err == nil {
			return body, nil
		}
	}
	return nil, err
}

func check(archive []byte, integrity string) error {
	sum := sha512.Sum512(archive)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != integrity {
		return fmt.Errorf("the file is %s, want %s", got, integrity)
	}
	return nil
}

// unpack writes the files of a package, without the folder that holds all of them.
func unpack(archive []byte, into string) error {
	compressed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	files := tar.NewReader(compressed)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		_, name, _ := strings.Cut(h.Name, "/")
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(name) {
			continue
		}
		to := filepath.Join(into, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		f, err := os.Create(to)
		if err != nil {
			return err
		}
		if _, err := io.Copy(f, io.LimitReader(files, most)); err != nil {
			f.Close()
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
}
