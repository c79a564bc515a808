package api

import "github.com/isthmus-mesh/isthmus/internal/strict"

// Error is one mistake in one object.
type Error = strict.Error

// Errors are the mistakes of a file or an object, in the order of their lines.
type Errors = strict.Errors
