# The package in machines with a real systemd; included by the Makefile at the top. See the head of each machine.

.PHONY: test-system test-arm64

## test-system: the amd64 package under a real systemd, in namespaces of this host
test-system:
	@tests/machines/test amd64

## test-arm64: the arm64 package in an emulated ARM64 machine with all cgroup controllers
test-arm64:
	@tests/machines/test arm64
