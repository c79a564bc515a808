BIN := $(CURDIR)/bin
DAPRD_MODULE := components/daprd

# Which of Dapr's components go into daprd: stablecomponents or allcomponents.
DAPRD_TAGS ?= stablecomponents

.PHONY: build
build: ## bin/isthmus
	go build -ldflags "-X main.version=$(shell git describe --tags --always --dirty 2>/dev/null)" -o $(BIN)/isthmus ./cmd/isthmus

# Go knows itself what is up to date, so these always run and mostly do nothing.
.PHONY: deps daprd sentry
deps: sentry daprd ## what the demo and the whole-system tests run besides isthmus
daprd: ## bin/daprd: Dapr's sidecar with Isthmus loaded
	@cd $(DAPRD_MODULE) && ./build.sh daprd $(BIN)/daprd . -tags $(DAPRD_TAGS)
sentry: ## bin/sentry: Dapr's certificate authority
	@cd $(DAPRD_MODULE) && ./build.sh sentry $(BIN)/sentry ./sentry

# Generated code is committed; this reproduces it byte for byte.
.PHONY: generate
generate:
	go tool -modfile=tools/go.mod buf lint
	go tool -modfile=tools/go.mod buf generate

# Staticcheck and the code generators are Go tools, pinned in tools/go.mod.
TOOL := go tool -modfile=$(CURDIR)/tools/go.mod
MODULES := . $(DAPRD_MODULE)

.PHONY: test lint fuzz bench demo
test: export ISTHMUS_REQUIRE_BINARIES = 1
test: deps build ## everything, with real daprd and Sentry
	go test -race ./...
	cd $(DAPRD_MODULE) && go test -race -tags $(DAPRD_TAGS) ./...

lint: ## formatting, vet, staticcheck, and that generated code is current
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "these files want gofmt -w"; exit 1; }
	@for m in $(MODULES); do echo "vet, staticcheck $$m" && (cd $$m && go vet -tags $(DAPRD_TAGS) ./... && $(TOOL) staticcheck -tags $(DAPRD_TAGS) ./...) || exit 1; done
	GOOS=darwin go vet ./...
	@$(MAKE) --no-print-directory generate && git diff --exit-code --stat -- api

FUZZTIME ?= 30s
fuzz: ## every fuzz target for FUZZTIME
	.ci/fuzz $(FUZZTIME)

demo: deps build ## two clusters on loopback, step by step; ONCE=1 exits after the last step
	$(BIN)/isthmus demo $(if $(ONCE),--once)
