# The speed of the daemon against a floor measured in the same run. A table on
# standard output, a machine-readable copy in target/bench/results.json.
#   make bench BENCH_ARGS="--quick"              a minute instead of ten
#   make bench BENCH_ARGS="--rows 'sh -c true'"  only rows whose name begins with this
#   make bench BENCH_ARGS="--check"              fail when a goal is missed
BENCH_ARGS ?=

.PHONY: bench

## bench: the daemon's speed against a floor measured in the same run; BENCH_ARGS=--quick for a minute of it
bench:
	cargo bench --locked --bench speed -- $(BENCH_ARGS)
