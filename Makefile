BIN := $(CURDIR)/bin
DAPRD_MODULE := components/daprd

# Which of Dapr's components go into daprd: stablecomponents or allcomponents.
export DAPRD_TAGS ?= stablecomponents

# What is built runs on any Linux, and is the same from the same commit wherever it is built, and
# whatever tags that has. What vets and checks shares the packages that this compiles.
build build-demo build-full deps deps-demo deps-install doctor test-servers daprd placement helm lint: export CGO_ENABLED = 0
build build-demo build-full deps deps-demo deps-install doctor test-servers daprd placement helm lint: export GOFLAGS = -trimpath -buildvcs=false

.PHONY: help build build-demo build-full
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# Without symbols and debug information, which are a third of the binary.
LDFLAGS := -s -w -X main.version=$(shell git describe --tags --always --dirty 2>/dev/null)

# grpcnotrace leaves out what would draw pages of gRPC's requests, which nothing here serves. Inlining
# would copy each generated template of the console to all of its callers: half a megabyte.
export SMALL := -tags grpcnotrace -gcflags github.com/isthmus-mesh/isthmus/resolver-service/edges/console/pages=-l
build: ## bin/isthmus
	go build $(SMALL) -ldflags "$(LDFLAGS)" -o $(BIN)/isthmus ./cmd/isthmus
build-demo: build # bin/isthmus-demo
	go build -ldflags "$(LDFLAGS)" -o $(BIN)/isthmus-demo ./cmd/isthmus-demo
build-full: ## bin/isthmus-full: with the Dapr components that need a cloud's client, or the typed one of Kubernetes
	go build $(SMALL) -tags clouds,grpcnotrace -ldflags "$(LDFLAGS)" -o $(BIN)/isthmus-full ./cmd/isthmus

# What is had of Dapr, of servers and of tools stands in tests/sandbox/programs, one line for each program. Go
# knows itself what is up to date of our own code, so it is asked each time and mostly does nothing.
HAVE := go run ./tests/sandbox/have

.PHONY: deps deps-demo deps-install doctor test-servers daprd placement helm example clean
deps: ## everything that make test runs besides isthmus; some 20 minutes the first time
	@$(HAVE) tests
deps-demo: ## what the demo runs besides isthmus; some 8 minutes the first time
	@$(HAVE) demo
deps-install: ## what make test-install runs besides isthmus
	@$(HAVE) clusters
doctor test-servers: ## what is here, what is missing, and what each program of the tests takes to get
	@$(HAVE) doctor
daprd placement helm: ## one program of tests/sandbox/programs, into bin/; others by: go run ./tests/sandbox/have NAME
	@$(HAVE) $@
example: deps-demo build ## what examples/two-clusters runs: isthmus, Dapr's sidecar and Sentry, and an app
	go build -o $(BIN)/example-app ./examples/two-clusters/app
clean: ## removes bin/ and dist/; Go's caches stay
	rm -rf $(BIN) dist

# Pages of the console are written in .templ files, which become Go code beside them.
CONSOLE := resolver-service/edges/console

# Generated code is committed; this reproduces it byte for byte.
.PHONY: generate
generate: helm
	go tool -modfile=tools/go.mod buf lint
	go tool -modfile=tools/go.mod buf generate
	go tool -modfile=tools/go.mod buf generate --template buf.gen.crds.yaml
	go tool -modfile=tools/go.mod templ generate -log-level warn -path $(CONSOLE)
	.ci/manifests
	go test -count=1 ./cmd/isthmus ./internal/show -run 'TestTheReferenceIsTheHelp|TestTheJSONPageHasEveryField' -update

# Staticcheck, govulncheck and the code generators are Go tools, pinned in tools/go.mod.
TOOL := go tool -modfile=$(CURDIR)/tools/go.mod
MODULES := . $(DAPRD_MODULE) tools tests/sdks/go tests/sdks/workflow examples/quickstart/go

# What links more packages than that has the clients of clouds in it, which take minutes to
# compile for another system or for fuzzing.
HEAVY := 700

# Which packages a run has says .ci/packages. What debuggers read would be a third of the time to link.
LEAN := -vet=off -ldflags '-s -w'
# Only what the demo has built is run: so these tests take as long on each machine.
SHORT := ISTHMUS_TEST_PROGRAMS=demo
# Most packages wait for servers rather than for a processor, so more of them run at a time than there are
# processors. No test runs again: one that fails is to be mended.
TEST_PACKAGES ?= 6
SUMMED = $(TOOL) gotestsum --format pkgname --hide-summary skipped $(if $(JSON),--jsonfile $(JSON)-$@.json)
ALL := $(LEAN) -timeout 40m

.PHONY: test test-all test-raced test-worlds test-alone test-daprd test-daprds test-changed test-install before lint fuzz bench demo
test test-worlds test-alone test-daprd test-daprds: export CGO_ENABLED = 0
test test-raced test-worlds test-alone test-daprd test-daprds: export GOFLAGS = -trimpath -buildvcs=false
# What has the race detector on waits a second for other reports before it ends, in a hundred processes.
test test-raced: export GORACE = atexit_sleep_ms=100
test: $(if $(wildcard $(BIN)/daprd),deps-demo build) ## everyday tests: all that needs no server, and the demo once its programs are there
	@echo "with the race detector, what links little; then the rest. make test-all has all of it, and servers"
	$(SHORT) CGO_ENABLED=1 go test $(LEAN) -short -p 4 -race $$(.ci/packages light)
	$(SHORT) go test $(LEAN) -short -p 4 $$(.ci/packages heavy)
test-all: deps build ## all tests, against the real servers; after make test
	@$(MAKE) --no-print-directory -j 2 test-raced test-daprd
	@$(MAKE) --no-print-directory test-worlds
	@$(MAKE) --no-print-directory test-alone
test-raced: # with the tag that links all Dapr components, so that the tests of each run
	CGO_ENABLED=1 $(SUMMED) --packages "$$(.ci/packages raced | tr '\n' ' ')" -- $(ALL) -race -tags clouds -p $(TEST_PACKAGES)
test-worlds: TEST_PACKAGES = 4 # tests/system, the longest, runs as many tests at a time by itself
test-worlds:
	$(SUMMED) --packages "$$(.ci/packages worlds | tr '\n' ' ')" -- $(ALL) -p $(TEST_PACKAGES)
test-alone:
	$(SUMMED) --packages "$$(.ci/packages alone | tr '\n' ' ')" -- $(ALL) -p 1
test-daprd: # compiled as daprd is
	cd $(DAPRD_MODULE) && $(SUMMED) --packages "$$(go list ./... | tr '\n' ' ')" -- $(ALL) -tags $(DAPRD_TAGS)

# Packages that hold or import, also by their tests, a package with a file that differs from SINCE.
SINCE ?= main
test-changed: ## the packages that import what changed since SINCE (main); those that need servers that are not there leave that out
	@changed=$$({ git diff --name-only $(SINCE) -- ; git ls-files --others --exclude-standard; } | xargs -rn1 dirname | sort -u | sed 's,^,./,' | xargs -r go list -e -f '{{if .GoFiles}}{{.ImportPath}}{{else if .XTestGoFiles}}{{.ImportPath}}{{else if .TestGoFiles}}{{.ImportPath}}{{end}}' 2>/dev/null); \
	packages=$$(go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./... | awk -v changed="$$(echo $$changed)" 'BEGIN {n = split(changed, c); for (i = 1; i <= n; i++) is[c[i]] = 1} $$1 ~ /\.test$$/ {p = $$1; sub(/\.test$$/, "", p); for (i = 2; i <= NF; i++) if ($$i in is) {print p; next}}'); \
	if [ -z "$$packages" ]; then echo "no package of this module differs from $(SINCE)"; else echo $$packages | xargs -n1; go test -short $$packages; fi

# The release that an upgrade begins at: FROM, or the commit before.
BEFORE := $(CURDIR)/.cache/before
before:
	@test -e $(BEFORE) || git worktree add --force --detach $(BEFORE)
	@git -C $(BEFORE) checkout --quiet --detach $$(git rev-parse $(or $(FROM),HEAD~1))
	@$(MAKE) --no-print-directory -C $(BEFORE) build daprd
test-install: deps-install build before ## two Kubernetes clusters: install, upgrade from FROM (HEAD~1), another root; root and Linux, 20 minutes at most
	ISTHMUS_TEST_INSTALL=1 go test -count=1 -v -timeout 40m ./tests/clusters -before $(BEFORE)

test-daprds: build ## our daprd with each version of Dapr that is supported, and calls with it; some 3 minutes each. DAPRDS=1.17.5 names some
	go test -count=1 -v -timeout 0 ./tests/outside -run TestDaprds -daprds $(or $(DAPRDS),all)

lint: ## formatting, vet, staticcheck, and that generated code is current
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "these files want gofmt -w"; exit 1; }
	@for m in $(MODULES); do echo "vet, staticcheck $$m" && (cd $$m && go vet -tags $(DAPRD_TAGS) ./... && $(TOOL) staticcheck -tags $(DAPRD_TAGS) ./...) || exit 1; done
	go vet ./configstore/dapr && $(TOOL) staticcheck ./configstore/dapr # the default build, without that tag
	GOOS=darwin go vet $$(go list -f '{{if lt (len .Deps) $(HEAVY)}}{{.ImportPath}}{{end}}' ./...)
	@$(MAKE) --no-print-directory generate && git diff --exit-code --stat -- api deploy $(CONSOLE) docs/reference/cli.md docs/reference/json.md

.PHONY: images release version publish test-release
version: ## writes VERSION=v1.2.3 where the tree names its own: commit that, then tag v1.2.3 and components/daprd/v1.2.3
	cd $(DAPRD_MODULE) && go mod edit -require=github.com/isthmus-mesh/isthmus@$(or $(VERSION),$(error say VERSION=v1.2.3))
images: ## OCI images in dist/images, for PLATFORMS (linux/amd64,linux/arm64); TO=registry.example/isthmus pushes them
	@.ci/release images
release: helm ## all of a release in dist/release: VERSION=v1.2.3, TO as above, and KEY, a private key that signs it
	@.ci/release release
publish: ## dist/release to GitHub, as a release of the tag VERSION, by its command line gh
	gh release create $(VERSION) --verify-tag $(if $(findstring -,$(VERSION)),--prerelease) --notes-file dist/release/NOTES.md dist/release/*
test-release: ## a release of isthmus alone, checked and installed as docs/how-to/check-a-release.md says; root, Debian
	@$(HAVE) releases
	cd tools && ISTHMUS_TEST_RELEASE=1 go test -count=1 -v -timeout 30m -run 'TestARealRelease' ./release

.PHONY: upstream conformance
upstream: ## the patch for Dapr's repositories, in dist/upstream
	cd $(DAPRD_MODULE) && go run -tags $(DAPRD_TAGS) ./upstream -out $(CURDIR)/dist/upstream

conformance: deps build ## the table of docs/reference/conformance.md anew; 20 minutes, most of them with the race detector
	cd $(DAPRD_MODULE) && CGO_ENABLED=0 go test $(ALL) -tags $(DAPRD_TAGS) ./conformance -run TestTable -update
	cd $(DAPRD_MODULE) && CGO_ENABLED=1 go test $(ALL) -tags $(DAPRD_TAGS) -race ./conformance -run TestTable -update

.PHONY: site
site: ## the docs as a static site with search, in dist/site
	cd tools && go run ./site -o ../dist/site

.PHONY: sheet
sheet: ## size and shape of our code and docs beside projects that read well; DEPTH=2 names folders by two parts
	@go run ./tests/sheet -depth $(or $(DEPTH),1)

.PHONY: vulncheck vulndb
vulncheck: ## that no known vulnerability reaches what we ship; works offline, from a stored copy of the database
	cd tools && go test ./... && go run ./vulncheck
vulndb: ## make that copy again from VULNDB, a clone of github.com/golang/vulndb
	cd tools && go run ./vulncheck -update $(abspath $(or $(VULNDB),$(error say VULNDB=path)))

FUZZTIME ?= 300000x
fuzz: ## every fuzz target, FUZZTIME inputs each; of packages that link at most FUZZMOST others
	.ci/fuzz $(FUZZTIME) $(FUZZMOST)

demo: deps-demo build-demo ## two clusters on loopback, step by step; ONCE=1 exits after the last step
	$(BIN)/isthmus-demo $(if $(ONCE),--once)

.PHONY: recording
recording: deps-demo build-demo ## docs/pictures/demo.svg, from a run of the demo
	cd tools && go run ./recording -o ../docs/pictures/demo.svg -hide $(CURDIR) $(BIN)/isthmus-demo --once

.PHONY: faults oncall torture test-upgrades simulate mutants
faults: deps build ## what each fault of docs/reference/figures/failover.md costs, in network namespaces; needs root, Linux
	go test -count=1 -v -timeout 15m ./tests/faults -exact
oncall: deps build ## random faults under calls for DURATION (1h): no surface may say that all is well while calls fail
	go test -count=1 -v -timeout 0 ./tests/faults -run TestOnCall -oncall $(or $(DURATION),1h)
torture: deps build ## random faults on real processes for HOURS (1), the stores in turn; SEED=n repeats one, STORES=redis,etcd, REPORT=file.json
	go test -count=1 -v -timeout 0 ./tests/faults -run TestTorture -torture $(or $(HOURS),1)h $(if $(SEED),-seed $(SEED)) $(if $(STORES),-stores $(STORES)) $(if $(REPORT),-report $(abspath $(REPORT)))
# The releases that today's programs meet: the last two tags or, while there is none, two commits.
RELEASES ?= $(or $(shell git tag --list 'v[0-9]*' --sort=-version:refname | head -2),29819086 7752a7b9)
comma := ,
test-upgrades: deps build ## parts of the last two RELEASES with today's, both ways, under calls; and stores there and back; some 30 minutes
	@for r in $(RELEASES); do $(MAKE) --no-print-directory before FROM=$$r BEFORE=$(CURDIR)/.cache/releases/$$r || exit 1; done
	go test -count=1 -v -timeout 0 ./tests/faults -run TestUpgrades -releases $(subst $(eval ) ,$(comma),$(RELEASES:%=$(CURDIR)/.cache/releases/%))
simulate: ## thousands of random histories of three clusters, on fake clocks; RUNS of them, some two a second
	go test -count=1 -timeout 0 -tags clocks -overlay $$(go run ./tests/simulation/clocks .cache/clocks) ./tests/simulation -run 'TestSimulation|TestExchanges' -runs $(or $(RUNS),2000)
mutants: ## faults put into the code, one at a time, and what in the simulation finds each
	go run ./tests/mutants

# Benchmarks: what docs/reference/figures/performance.md shows. Everything is on loopback and bounded; what
# is not here is left out and named. BENCH has flags for every program, such as -short.
BENCH ?=
unless-short = $(if $(filter -short,$(BENCH)),$(2),$(1))
.PHONY: bench-go bench-guard bench-resolve bench-call bench-actors bench-console bench-scale bench-fanout bench-xds bench-peers bench-stores bench-gateway bench-dns
bench: bench-go bench-guard bench-resolve bench-call bench-actors bench-console bench-scale bench-fanout bench-xds bench-peers bench-stores bench-gateway bench-dns ## every table of docs/reference/figures/performance.md and docs/explanation/scale.md

bench-go: ## Go benchmarks of the packages that a lookup and a change go through
	go test -run '^$$' -bench . -benchtime $(call unless-short,200ms,1x) ./internal/live ./catalog ./tracing ./nameresolution
	go test -run '^$$' -bench 'ChangesOf|Moves|Assign|Offers' -benchtime $(call unless-short,200x,1x) ./resolver-service/topology

bench-guard: ## what the guard costs a call, beside Dapr's accessControl
	cd $(DAPRD_MODULE) && go test -run '^$$' -bench Guard -tags $(DAPRD_TAGS) ./component

bench-resolve: ## ResolveID beside a map and every other resolver of Dapr's
	@cd $(DAPRD_MODULE) && go run -tags $(DAPRD_TAGS) ./resolvebench resolve $(BENCH)

bench-call: build ## what a call costs the caller's daprd, beside stock daprd; PROFILE=directory keeps profiles
	@go run ./tests/bench call $(BENCH) $(if $(PROFILE),-profile $(abspath $(PROFILE)))

bench-actors: build placement ## a call of an actor in another cluster, beside service invocation
	@go run ./tests/bench actors $(BENCH)

bench-console: build ## what pages of the console cost, and browsers that stay open
	@go run ./tests/bench console $(BENCH)

bench-scale: ## what a change costs, by the size of the cluster
	@go test -run '^$$' -bench '$(call unless-short,InstanceChanges,InstanceChanges/apps=100[^0])' -benchtime $(call unless-short,2s,10x) ./resolver-service/topology

bench-fanout: ## how soon 1,000 sidecars see a change
	@go run ./tests/bench fanout $(BENCH)

bench-xds: ## how soon clients of xDS see a change, beside go-control-plane's LinearCache
	@go run ./tests/bench xds $(BENCH)

bench-peers: ## what 10 to 1,000 other clusters cost, with 200 exports each and 20 in use
	@go run ./tests/bench peers $(BENCH)

bench-stores: ## from a write to a config store to its delivery, beside the store's own watch; a start; requests at rest
	@go test -run '^$$' -bench Deliver -benchtime $(call unless-short,1000x,10x) ./configstore/...
	@go test -run '^$$' -bench 'Start|Questions' -benchtime $(call unless-short,3x,1x) ./configstore/...
	@go test -run '^$$' -bench AtRest -benchtime $(call unless-short,60x,3x) ./configstore/...

bench-gateway: ## the gateway beside HAProxy, nginx and sniproxy
	@go run ./tests/bench gateway $(BENCH)

bench-dns: build ## DNS beside Knot, NSD and CoreDNS, asked by dnsperf; and what 1,000,000 names cost
	@go run ./tests/bench dns $(BENCH)
	@go test -run '^$$' -bench '$(call unless-short,Names,Names/^1000$$)' -benchtime 1000x ./resolver-service/edges/dns/zone
