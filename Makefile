# RUN= picks tests (make test RUN=TestLock), ARGS= adds flags (ARGS='-count=1 -v'),
# PKG= picks packages, SERVE= adds flags for the servers (SERVE=-durable).
SHELL  := /bin/bash
PKG    ?= ./...
# Tests that run in parallel mostly wait for leases to end, not for a processor.
GOTEST  = go test -parallel 8 $(if $(RUN),-run '$(RUN)') $(ARGS)
# Modules of their own, for what no user's build should get.
MODULES = bench schedule/cronlock schedule/gocronlock plugintest cmd/intlock/clitest
DBS     = go run ./internal/testdb/serve $(SERVE)

STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.1
GOVULNCHECK = go run golang.org/x/vuln/cmd/govulncheck@v1.9.0

.PHONY: help run loan install test test-short race test-modules interop histories check-long bench bench-go mutants check lint vuln cover db clean-cache

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## the example: aggregators that share their groups
	go run ./examples/aggregator $(ARGS)

loan: ## the other example: a service that gets each request ten times
	go run ./examples/loan $(ARGS)

install: ## the command intlock, into Go's bin folder
	go install ./cmd/intlock

test: ## all tests on PostgreSQL, MySQL, MariaDB and SQLite; brings up its own servers
	$(DBS) -- $(GOTEST) $(PKG)

test-short: ## the short tests on memory and SQLite, without any set-up
	INTLOCK_TEST_SKIP=postgres,mysql,mariadb $(GOTEST) -short $(PKG)

race: ## all tests on all databases with the race detector
	$(DBS) -- $(GOTEST) -race $(PKG)

mutants: ## deliberate faults, one at a time: each must make a test fail
	$(DBS) -- go run ./internal/mutants $(ARGS)

bench: ## intlock beside others, every goal; writes docs/performance.md (QUICK=1, ONLY=handover)
	@mkdir -p bin && cd bench && go build -o ../bin/bench .
	go run ./internal/testdb/serve -durable -- bin/bench $(if $(QUICK),-quick,$(if $(ONLY),,-docs docs)) $(if $(ONLY),-only $(ONLY)) $(ARGS)

bench-go: ## the Go benchmarks of each layer, for benchstat
	$(DBS) -- go test -run '^$$' -bench '$(or $(RUN),.)' $(ARGS) ./repository ./registry ./renew

test-modules: ## tests of the modules beside the library: hooks, plug-ins, the command, the benchmark
	$(DBS) -- bash -c 'set -e; for m in $(MODULES); do (cd $$m && go test -race -count=1 -parallel 8 -timeout 10m ./...); done'

interop: ## the real Spring Integration and ShedLock, in Java, on the same rows (needs a JDK and Maven)
	$(DBS) -- bash -c 'cd interop && go test -count=1 -timeout 20m $(if $(RUN),-run "$(RUN)") $(ARGS) ./...'

histories: ## whole histories under faults, checked by porcupine (ARGS='-seed N' repeats one, RUN=TestHistories/mysql)
	$(DBS) -- bash -c 'cd check && go test -v -count=1 -timeout 60m $(if $(RUN),-run "$(RUN)") $(ARGS) .'

check-long: ## the same for 40 minutes: more than a million operations, hundreds of faults
	$(MAKE) histories ARGS='-duration 8m -operations 250000 $(ARGS)'

check: lint vuln mutants race test-modules interop ## everything that must be green before a change is merged

lint: ## formatting, vet, staticcheck, go.mod, who imports whom
	@files=$$(gofmt -l . | grep -v '^[._]'); if [ -n "$$files" ]; then echo "not gofmt'ed:"; echo "$$files"; exit 1; fi
	go vet ./...
	$(STATICCHECK) ./...
	go mod tidy -diff
	@set -e; for m in $(MODULES) interop check; do echo "lint $$m"; (cd $$m && go vet ./... && $(STATICCHECK) ./... && go mod tidy -diff); done
	@if [ -d internal/arch ]; then echo go test ./internal/arch; go test ./internal/arch; fi

# Exit status 3 is a finding. Anything else that fails before a finding is the
# database of vulnerabilities out of reach, as in a closed network.
vuln: ## known vulnerabilities in what we import
	@out=$$($(GOVULNCHECK) ./... 2>&1); status=$$?; \
	if [ $$status = 0 ]; then echo "govulncheck: nothing found"; \
	elif grep -qE 'exit status 3|Vulnerability #' <<<"$$out"; then echo "$$out"; exit 1; \
	elif grep -qE 'vuln\.go\.dev|fetching vulnerabilities|dial tcp|proxyconnect|no such host' <<<"$$out"; then \
		echo "govulncheck: skipped, its vulnerability database cannot be reached from here"; \
	else echo "$$out"; exit 1; fi

cover: ## all tests on all databases, and which lines none of them reaches
	$(DBS) -- $(GOTEST) -coverprofile=cover.out -coverpkg=./... $(PKG)
	@mkdir -p bin && go tool cover -html=cover.out -o bin/cover.html
	@go tool cover -func=cover.out | tail -1; echo "line by line: bin/cover.html"

db: ## the servers alone, for single tests from another shell; prints what to set there
	$(DBS)

clean-cache: ## remove what make test keeps between runs: MySQL and initialised data folders
	go run ./internal/testdb/serve -clean
