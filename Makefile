# Everything needs Go, git and make; `make deps` brings the rest.
# `make` alone lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

BIN := .local/bin
# The modules of go.work that exist; each of services/ is one.
SERVICES := $(patsubst %/go.mod,%,$(wildcard services/*/go.mod))
MODULES := $(patsubst %/go.mod,%,$(wildcard pkg/go.mod services/*/go.mod dev/go.mod test/go.mod))
STATICCHECK := $(BIN)/staticcheck

# A whole run is meant to stay under 20 minutes on two cores of its own; a package that
# takes longer than this hangs, also on a busy machine.
TEST_TIMEOUT ?= 25m
# Results of tests with real servers are cached like all others while nothing of
# ours changed; CI sets CI=true and wants them fresh.
TEST_FLAGS ?= $(if $(CI),-count=1)

.PHONY: help
help: ## this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: deps
deps: ## install what is missing: MariaDB, Redis, Java, gcc; MySQL, RocketMQ, promtool into .local
	@dev/install.sh --mysql --rocketmq --promtool

.PHONY: build
build: ## all services into .local/bin
	@mkdir -p $(BIN)
	@$(if $(SERVICES),go build -o $(BIN)/ $(addprefix ./,$(SERVICES)),echo "no services yet")

.PHONY: test
test: deps lint tidy-check licences ## what CI runs: lint, then every test on real servers
	@tools/test.sh $(TEST_FLAGS) -timeout=$(TEST_TIMEOUT)

.PHONY: test-unit
test-unit: ## every test but the end-to-end ones, without the race detector
	@go test $(TEST_FLAGS) -timeout=$(TEST_TIMEOUT) $(addsuffix /...,$(addprefix ./,$(filter-out test,$(MODULES))))

.PHONY: soak
soak: deps ## repetitions, large numbers, long outages (hours, by hand)
	@dev/install.sh --rocketmq5
	@SEAHUB_SOAK=1 tools/test.sh -count=1 -timeout=3h

.PHONY: lint
lint: $(STATICCHECK) ## gofmt, go vet, staticcheck, over all modules
	@unformatted=$$(gofmt -l $(MODULES) tools); \
	  if [ -n "$$unformatted" ]; then printf 'gofmt -w these:\n%s\n' "$$unformatted" >&2; exit 1; fi
	@go vet work
	@$(STATICCHECK) work
	@cd tools && GOWORK=off go vet ./... && GOWORK=off ../$(STATICCHECK) ./... # not in go.work

.PHONY: tidy-check
tidy-check: ## each module stands alone and is tidy; all agree on versions
	@tools/tidy-check.sh $(MODULES)

.PHONY: licences
licences: ## the licence of every module in the services; fails for one that is not accepted
	@mkdir -p $(BIN)
	@GOWORK=off go -C tools build -o ../$(BIN)/licences ./licences
	@$(BIN)/licences -shipped $(SERVICES)

.PHONY: sbom
sbom: ## what each service is built from, as CycloneDX in out/sbom
	@tools/sbom.sh $(SERVICES)

.PHONY: vulncheck
vulncheck: ## known faults that our code reaches, by the newest database (VULNDB)
	@tools/vulncheck.sh $(SERVICES)

# Needs a Docker engine.
VERSION ?= dev
.PHONY: images
images: ## an image of each service, as seahub-mq/SERVICE:VERSION (needs Docker)
	@for s in $(notdir $(SERVICES)); do \
	  docker build --build-arg SERVICE=$$s --build-arg VERSION=$(VERSION) --build-arg COMMIT=$$(git rev-parse --short HEAD) \
	    -t seahub-mq/$$s:$(VERSION) .; done

# Sizes are flags of the programs: BENCH_FLAGS="--events=30000", or variables: BENCH_EVENTS=30000.
DB ?= mariadb
PROVIDER ?= redis-streams

.PHONY: bench-bus
bench-bus: deps ## our event bus against the bare client of its broker (PROVIDER)
	@mkdir -p $(BIN)
	@go build -o $(BIN)/bench-bus ./test/bench/bus
	@$(BIN)/bench-bus --provider=$(PROVIDER) $(BENCH_FLAGS)

.PHONY: bench-coupon
bench-coupon: deps ## a million due coupons, flag off and on, beside business updates
	@mkdir -p $(BIN)
	@go build -o $(BIN)/bench-coupon ./test/bench/coupon
	@$(BIN)/bench-coupon $(BENCH_FLAGS)

.PHONY: bench-campaign
bench-campaign: deps ## the campaign sync by events against the old serial sync (45 minutes)
	@mkdir -p $(BIN)
	@go build -o $(BIN)/bench-campaign ./test/bench/campaign
	@$(BIN)/bench-campaign $(BENCH_FLAGS)

.PHONY: bench
bench: deps ## the relay against its database's floor and a naive relay (DB, PROVIDER)
	@mkdir -p $(BIN)
	@go build -o $(BIN)/bench-relay ./test/bench/relay
	@$(BIN)/bench-relay --db=$(DB) --provider=$(PROVIDER) $(BENCH_FLAGS)

.PHONY: catalogue
catalogue: ## rewrite the list of configuration keys and its page in docs
	@go run ./dev/cmd/catalogue

.PHONY: demo
demo: deps ## the whole system on this machine, one story from row to effect (PROVIDER)
	@go run ./dev/cmd/stack demo --provider=$(PROVIDER)

.PHONY: up
up: deps ## start servers and services here and leave them running
	@go run ./dev/cmd/stack up

.PHONY: down
down: ## stop what `make up` started
	@go run ./dev/cmd/stack down

.PHONY: clean
clean: ## remove built binaries and template data, keep the fetched MySQL
	@rm -rf $(BIN) .local/cache/mariadb-* .local/cache/mysql-*

$(STATICCHECK): tools/go.mod tools/go.sum
	@mkdir -p $(BIN)
	@GOWORK=off go -C tools build -o ../$@ honnef.co/go/tools/cmd/staticcheck
	@touch $@
