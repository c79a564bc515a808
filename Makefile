BIN := $(CURDIR)/bin
DAPRD_MODULE := components/daprd

# Which of Dapr's components go into daprd: stablecomponents or allcomponents.
DAPRD_TAGS ?= stablecomponents

.PHONY: build
build: ## bin/isthmus
	go build -o $(BIN)/isthmus ./cmd/isthmus

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
