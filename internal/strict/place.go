package strict

import (
	"path/filepath"
	"reflect"
)

// Place makes the paths of files in what of points to relative to a directory, as those in a
// file are relative to the directory of that file. A field that is a path has a tag named
// file; a value that the tag names is a word and no path. Absolute paths and empty ones stay.
func Place(of any, directory string) { place(reflect.ValueOf(of).Elem(), directory) }

func place(v reflect.Value, directory string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			place(v.Elem(), directory)
		}
	case reflect.Slice:
		for i := range v.Len() {
			place(v.Index(i), directory)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			word, isFile := field.Tag.Lookup("file")
			switch path := v.Field(i); {
			case !field.IsExported():
			case !isFile:
				place(path, directory)
			case path.String() != "" && path.String() != word && !filepath.IsAbs(path.String()):
				path.SetString(filepath.Join(directory, path.String()))
			}
		}
	}
}
