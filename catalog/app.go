// Package catalog has the values of Isthmus and the rules of a lookup. It does no I/O, starts no
// goroutine, reads no clock and imports only the standard library.
package catalog

import (
	"cmp"
	"fmt"
	"strings"
)

// App is a Dapr application: a namespace and an app-id.
type App struct {
	Namespace string
	ID        string
}

// String is "namespace/app-id".
func (a App) String() string { return a.Namespace + "/" + a.ID }

// Compare orders apps by namespace, then by app-id.
func (a App) Compare(b App) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ID, b.ID))
}

// ParseApp reads "namespace/app-id" and checks both with [CheckNamespace] and
// [CheckAppID].
func ParseApp(s string) (App, error) {
	ns, id, ok := strings.Cut(s, "/")
	if !ok {
		return App{}, fmt.Errorf("app %q: want namespace/app-id", s)
	}
	app := App{Namespace: ns, ID: id}
	return app, app.Check()
}

// Check checks that daprd can carry the app's name.
func (a App) Check() error {
	return cmp.Or(CheckNamespace(a.Namespace), CheckAppID(a.ID))
}

// CheckHost checks that DNS and SNI can carry the app's name, too. Only then can objects have it as
// their own, and other clusters call the app.
func (a App) CheckHost() error {
	return cmp.Or(CheckNamespace(a.Namespace), CheckHostAppID(a.ID))
}
