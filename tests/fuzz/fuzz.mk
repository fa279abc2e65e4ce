# Fuzzing; included by the Makefile at the top.
FUZZ_SECS ?= 60

.PHONY: fuzz

## fuzz: what reads hostile input, against random bytes; FUZZ_SECS=60 for each target
fuzz:
	@tests/fuzz/run $(FUZZ_SECS)
