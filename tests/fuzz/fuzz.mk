.PHONY: fuzz

FUZZ_SECONDS ?= 60

## fuzz: each fuzz target for FUZZ_SECONDS (60); wants cargo-fuzz and a C++ compiler
fuzz:
	cd tests/fuzz && for target in call content; do \
	    mkdir -p corpus/$$target seeds/$$target && RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir . $$target \
	        corpus/$$target seeds/$$target -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 || exit 1; \
	done
