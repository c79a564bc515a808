package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// directory is a store of files, one for each object.
type directory string

// startFile: by hand, a file is replaced by a rename, as editors do.
func startFile(_ context.Context, dir string) (*subject, error) {
	d := directory(filepath.Join(dir, "config"))
	if err := os.Mkdir(string(d), 0o755); err != nil {
		return nil, err
	}
	settings := map[string]any{"file": map[string]any{"path": string(d)}}
	return &subject{
		settings: settings, fill: filler(dir, settings, 1000, 1), put: d.put, watch: d.watch,
		close: func() error { return nil },
	}, nil
}

// of is the file of an object, named as "isthmus apply" names it.
func (d directory) of(key catalog.Key) string {
	return filepath.Join(string(d), fmt.Sprintf("%s.%s.%s.yaml", key.Kind, key.Namespace, key.Name))
}

func (d directory) put(_ context.Context, object catalog.Object) error {
	path := d.of(object.Key())
	if err := os.WriteFile(path+".swp", api.EncodeYAML(object), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".swp", path)
}

// watch is fsnotify's smallest program.
func (d directory) watch(ctx context.Context, key catalog.Key, seen func([]byte)) (err error) {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	if err := events.Add(string(d)); err != nil {
		return err
	}
	path := d.of(key)
	for {
		value, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen(value)
		for about := ""; about != path; {
			select {
			case e := <-events.Events:
				about = e.Name
			case err := <-events.Errors:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}
