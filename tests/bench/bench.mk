# The speed of the daemon against a floor measured in the same run. It is built as it is shipped: a build for tests has
# more of some libraries. A table on standard output, a machine-readable copy in target/bench/results.json.
#   make bench BENCH_ARGS="--quick"              a minute instead of ten
#   make bench BENCH_ARGS="--rows 'sh -c true'"  only rows whose name begins with this
#   make bench BENCH_ARGS="--check"              fail when a goal is missed
BENCH_ARGS ?=

.PHONY: bench

## bench: the daemon's speed against a floor measured in the same run; BENCH_ARGS=--quick for a minute of it
bench:
	cargo build --locked --release --bins
	@mkdir -p target/bench
	@cp target/release/shelly-executord target/release/shelly-sandbox-init target/release/shellyctl target/bench/
	SHELLY_BENCH_DAEMON=$(CURDIR)/target/bench/shelly-executord cargo bench --locked --bench speed -- $(BENCH_ARGS)
