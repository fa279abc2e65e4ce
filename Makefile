# What people do with this repository, by name. `make help` lists it; each target runs from a fresh clone.

.PHONY: help all check check-format check-lints check-docs check-rules check-scripts test run clean
.DEFAULT_GOAL := help

## help: this list
help:
	@sed -n 's/^## \([a-z0-9, -]*\): /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "  make %-24s %s\n", $$1, $$2 }'

## all: the programs, optimised, in target/release
all:
	cargo build --locked --release --bins

## check: format, lints, documentation, the house rules and the scripts; not the tests
check: check-format check-lints check-docs check-rules check-scripts

check-format:
	cargo fmt --check
	rustfmt --check --edition 2024 tests/fuzz/fuzz_targets/*.rs

check-lints:
	cargo clippy --locked --all-targets -- -D warnings
	cargo metadata --locked --format-version 1 --manifest-path tests/fuzz/Cargo.toml >/dev/null

check-docs:
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --document-private-items

# Which room may name which, and what dependencies may bring in. They are among the tests as well.
check-rules:
	cargo test --locked --quiet --test it -- card:: layering:: manifest::

check-scripts:
	tests/scripts

## test: every test that this machine can run; says loudly which it cannot
test:
	@tests/run

## run: start a daemon of your own and try it; STAY=1 keeps it running
run:
	@docs/first-steps

## clean: remove everything that was built
clean:
	cargo clean

include packaging/deb.mk $(wildcard tests/*/*.mk)
