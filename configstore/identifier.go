package configstore

import "context"

// IdentityPath is the key of the identity in a store of keys and values, below the store's prefix. It
// is outside of api.KeyPrefix, where every key is an object to a release that does not know it.
const IdentityPath = "isthmus/identity"

// Identifier is a store that tells the place of its objects from any other place. So a peer tells
// replicas of one cluster, which share the place, from another cluster that has the same name.
type Identifier interface {
	// Identity returns the text that everybody who opens this place gets, and nobody who opens
	// another. Where the place has none yet, it gets anew, unless that is empty. What came first,
	// stands. Empty: there is none, and our credentials do not let us write one.
	Identity(ctx context.Context, anew string) (string, error)
}
