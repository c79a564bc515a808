# Generated code is committed; this reproduces it byte for byte.
.PHONY: generate
generate:
	go tool -modfile=tools/go.mod buf lint
	go tool -modfile=tools/go.mod buf generate
