# Run `make` to see what there is. CI runs test, test-clients and check.
#
# From the root, ./... means the root module alone. Whatever must see every
# module says `work` to the go command, or lists the modules.

GOFUMPT  := go run mvdan.cc/gofumpt@v0.12.0
GOLANGCI := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
SQLC     := go run github.com/sqlc-dev/sqlc/cmd/sqlc@v1.31.1

# The folders of all modules, and the flags that a caller may add.
MODULES   = $(shell go list -m -f '{{.Dir}}')
CLIENTS   = services/engy/clients
ARGS      ?=
TESTFLAGS ?=

.DEFAULT_GOAL := help

.PHONY: help
help: ## Say what there is.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: postgres ## Run the whole platform in one process; ARGS='--flag' passes flags on.
	go build -o bin/engy ./services/engy && bin/engy up $(ARGS)

.PHONY: test
test: ## Run all tests of all modules; TESTFLAGS='-run X -v' narrows them.
	go test $(TESTFLAGS) work

.PHONY: test-race
test-race: ## Run all tests in random order and look for data races.
	CGO_ENABLED=1 go test -race -shuffle=on $(TESTFLAGS) work

.PHONY: test-long
test-long: ## Run the tests that take minutes as well.
	LONG=1 go test -count=1 -timeout=60m $(TESTFLAGS) work

.PHONY: test-clients
test-clients: postgres ## Install real clients with npm and run them against the platform.
	npm ci --prefix $(CLIENTS) --ignore-scripts --no-audit --no-fund --loglevel=error
	$(CLIENTS)/node_modules/.bin/node $(CLIENTS)/node_modules/@anthropic-ai/claude-code/install.cjs
	CLIENTS=1 go test -count=1 -timeout=10m -run '^TestClients$$' $(TESTFLAGS) ./services/engy

.PHONY: bench
bench: postgres ## Measure the platform on this machine.
	go run ./services/engy bench $(ARGS)

.PHONY: lint
lint: ## Look for mistakes; .golangci.yml says which and why.
	$(GOLANGCI) run $(addsuffix /...,$(MODULES))

.PHONY: fmt
fmt: ## Format the code.
	$(GOFUMPT) -l -w .

.PHONY: generate
generate: ## Write generated code again.
	$(SQLC) generate -f sql/sqlc.yaml

.PHONY: verify
verify: ## Fail when generated code is not what generate would write.
	$(SQLC) diff -f sql/sqlc.yaml

.PHONY: tidy
tidy: ## Bring the module files up to date.
	go work sync
	@for m in $(MODULES); do (cd $$m && GOWORK=off go mod tidy) || exit 1; done

.PHONY: up
up: ## Start the services in containers.
	docker compose up --build --detach

.PHONY: down
down: ## Stop the containers; what they stored stays.
	docker compose down

.PHONY: migrate
migrate: ## Bring the database at DATABASE_URL up to date.
	go run ./services/engy migrate $(ARGS)

.PHONY: check
check: formatted vet lint build modules test-race verify ## Do all that CI does, save test-clients.

# The parts of check that nobody calls alone.

.PHONY: formatted
formatted:
	@unformatted=$$($(GOFUMPT) -l .) || exit 1; \
	if [ -n "$$unformatted" ]; then echo "run make fmt, for:"; echo "$$unformatted"; exit 1; fi

.PHONY: vet
vet:
	go vet work

.PHONY: build
build:
	go build work

# In the workspace a module builds even when its own go.mod lacks something,
# so each must also build, and be tidy, without it.
.PHONY: modules
modules:
	@for m in $(MODULES); do echo "module $$m"; \
		(cd $$m && export GOWORK=off && go build ./... && go mod tidy -diff) || exit 1; done

# The platform brings its own database server up, from the programs that the
# machine has.
.PHONY: postgres
postgres:
	@deploy/postgres.sh
