package configstore

import "context"

// MayWrite is the error of a store that can't be written, as far as that shows without a write.
func MayWrite(ctx context.Context, store Store) error {
	if prober, ok := store.(Prober); ok {
		return prober.MayWrite(ctx)
	}
	return nil
}

// Prober is a store with a server that can be tried out without changing anything: for
// people who set one up, with isthmus store check.
type Prober interface {
	// Server says in a few words who answers, such as "Consul 1.21.0 at
	// http://127.0.0.1:8500". It has no secret in it. Credentials may be refused.
	Server(ctx context.Context) (string, error)

	// MayWrite returns nil where our credentials may write objects, and ErrDenied or
	// ErrReadOnly where they may not. It writes nothing.
	MayWrite(ctx context.Context) error
}

// Lacker is a store whose server may lack something that Isthmus wants of it, though it can be read
// and written.
type Lacker interface {
	// Lacks returns what that is, each with what to do behind a semicolon. It is asked again and
	// again, and changes nothing.
	Lacks(ctx context.Context) ([]string, error)
}
