// Package login decides who may see the console: sessions, and the two ways to get one. One is a
// URL that works once, for the operator of this machine; the other is an OpenID Connect provider,
// for a team. It also refuses requests that another site, or a name that is not the console's, has
// caused.
package login

import (
	"context"
	"slices"
)

// Right is something that a person may do. The rights are the verbs that operators have in
// Kubernetes, too.
type Right string

// The rights.
const (
	Read  Right = "read"  // see everything, try changes out
	Write Right = "write" // write objects
	Link  Right = "link"  // connect clusters
)

// Session is a person that has signed in.
type Session struct {
	Person string  // for logs and pages
	Rights []Right // nil: whoever answers decides
	Token  string  // what forms show, so that no other site can send them
}

// May tells whether the person has a right, as far as is known here.
func (s *Session) May(r Right) bool { return s.Rights == nil || slices.Contains(s.Rights, r) }

type sessionKey struct{}

// WithSession puts a session into a request's context.
func WithSession(ctx context.Context, s *Session) context.Context {
	return context.WithValue(ctx, sessionKey{}, s)
}

// SessionOf is the session of a request; nil outside of a Gate.
func SessionOf(ctx context.Context) *Session {
	s, _ := ctx.Value(sessionKey{}).(*Session)
	return s
}

// TokenField is the name of the form's field with the session's token.
const TokenField = "token"
