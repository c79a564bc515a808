package configstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
)

// IdentityPath is the key of the identity in a store of keys and values, below the store's prefix.
// It is outside of api.KeyPrefix, where every key is an object to a release that does not know it.
const IdentityPath = "isthmus/identity"

// Identifier is a store that tells the place of its objects from any other place. So a peer tells
// replicas of one cluster, which share the place, from another cluster that has the same name.
type Identifier interface {
	// Identity returns the text that everybody who opens this place gets, and nobody who opens
	// another. Where the place has none yet, it gets anew, unless that is empty. What came first,
	// stands. Empty: there is none, and our credentials do not let us write one.
	Identity(ctx context.Context, anew string) (string, error)
}

// ErrIdentity is the error about an identity that is no identity.
var ErrIdentity = errors.New("not the identity of a cluster")

// MaxIdentity bounds an identity, in characters.
const MaxIdentity = 64

var anIdentity = regexp.MustCompile(fmt.Sprintf(`^[A-Za-z0-9_-]{1,%d}$`, MaxIdentity))

// Identity asks a store. An identity that peers can't be told is an error.
func Identity(ctx context.Context, of Identifier, anew string) (string, error) {
	id, err := of.Identity(ctx, anew)
	if err == nil && id != "" && !anIdentity.MatchString(id) {
		return "", fmt.Errorf("%w: %.*q in the store; want 1 to %d letters, digits, - and _; %s", ErrIdentity, MaxIdentity, id, MaxIdentity, DeleteIdentity)
	}
	return id, err
}

// DeleteIdentity says what to do about an identity that should not be in a store.
const DeleteIdentity = "delete the key of the identity, which ends in " + IdentityPath + " or in _identity, and the service writes its own"
