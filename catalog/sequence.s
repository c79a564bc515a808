// Lets sequence.go declare functions without a body.
