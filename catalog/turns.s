// Lets turns.go declare functions without a body.
