# Debian packages; included by the Makefile at the top. The results are in target/debian.

.PHONY: deb deb-amd64 deb-arm64 deb-check

## deb: build the Debian packages for amd64 and arm64
deb: deb-amd64 deb-arm64

## deb-amd64, deb-arm64: build the Debian package for one architecture
deb-amd64 deb-arm64: deb-%:
	packaging/build-deb $*

## deb-check: lintian on both packages, and install, upgrade, remove, purge and purge again in a throw-away system
deb-check: deb
	packaging/check-deb
