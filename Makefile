# The only entry points that people need. `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: help demo test test-fast lint docs fuzz bench bench-catalogue chaos
CARGO ?= cargo

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

demo: ## everything in one process, a plugin beside it, one sample run; ARGS=--once ends after it
	@$(CARGO) build --package conveyor --package text-tools
	@target/debug/conveyor demo $(ARGS)

test: ## everything; installs and starts what it needs (PostgreSQL, Redis)
	@scripts/test

test-fast: ## what needs no server
	@$(CARGO) test --workspace

lint: ## formatting, layers, clippy, unused and forbidden dependencies, generated documents
	@scripts/lint

docs: ## writes the generated documents (docs/configuration.md)
	@$(CARGO) run --quiet --package conveyor -- docs configuration > docs/configuration.md

fuzz: ## mutated inputs for everything that reads bytes of strangers; FUZZ_SECONDS=60 for all targets together
	@$(CARGO) run --quiet --package fuzz -- --seconds $(or $(FUZZ_SECONDS),60)

chaos: ## kills, restarts, fails over and cuts under load, and counts what was lost; CHAOS_SECONDS=300, CHAOS_SEED to replay
	@scripts/chaos

bench: ## durable step results per second through the whole door, beside NestJS 11; needs a quiet machine
	@scripts/bench

bench-catalogue: ## plugin-manager with a thousand plugins (a part of `make bench`); a minute and a half
	@$(CARGO) build --quiet --profile bench --package conveyor --package benches
	@target/release/bench-catalogue
