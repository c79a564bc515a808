package identity

import "context"

type personKey struct{}

// WithPerson is the context of a call whose caller another authority than certificates of apps
// knows by a name, such as Kubernetes.
func WithPerson(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, personKey{}, name)
}

// FromPerson returns the name that [WithPerson] gave.
func FromPerson(ctx context.Context) (name string, ok bool) {
	name, ok = ctx.Value(personKey{}).(string)
	return name, ok
}

// Caller names the caller of a gRPC method, in words for a log.
func Caller(ctx context.Context) string {
	if name, ok := FromPerson(ctx); ok {
		return name
	}
	if id, ok := FromContext(ctx); ok {
		return id.App.String()
	}
	if user, ok := FromLocal(ctx); ok {
		return user
	}
	return "anyone, insecure"
}
