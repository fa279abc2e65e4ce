# Sourced by both machines: the Debian root file system that they boot, and the few helpers that they share.

suite=trixie # systemd 257; the product asks for 254, which Debian 12 does not have
# Beyond systemd: what the product is driven with by its users (curl) and by the test suite (python3).
packages=systemd,systemd-sysv,dbus,curl,python3,procps

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# wait_until SECONDS WHAT COMMAND...: polls, because none of the things waited for can be subscribed to from a shell.
wait_until() {
    local deadline=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        ((SECONDS < deadline)) || fail "timed out waiting for $what"
        sleep 0.05
    done
}

# rootfs ARCHITECTURE CACHE: where it is, or will be. The name carries a checksum of this file, its only input.
rootfs() {
    echo "$2/rootfs-$1-$(cksum <"${BASH_SOURCE[0]}" | cut -d' ' -f1)"
}

# build_rootfs ARCHITECTURE CACHE FORMAT [MMDEBSTRAP-OPTION...]
build_rootfs() {
    local architecture=$1 cache=$2 format=$3 target
    shift 3
    target=$(rootfs "$architecture" "$cache")
    [[ ! -e $target ]] || return 0
    mkdir -p "$cache"
    chmod 0700 "$cache" # it is about to hold set-user-id programs that nobody updates
    (
        flock 9
        [[ ! -e $target ]] || exit 0
        rm -rf "$cache/rootfs-$architecture"-* # of other inputs, or half done
        echo "building a Debian $suite root file system for $architecture (about a minute)"
        # Documentation is left out to keep the machines small. The option must not stay behind in the machine: there
        # it would drop the man pages of the package under test.
        mmdebstrap --quiet --variant=minbase --architectures="$architecture" --format="$format" --include="$packages" \
            --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
            --dpkgopt='path-exclude=/usr/share/locale/*' \
            --customize-hook='rm "$1/etc/dpkg/dpkg.cfg.d/99mmdebstrap"' \
            --customize-hook='rm -f "$1/etc/resolv.conf"' \
            "$@" "$suite" "$target.partial"
        mv "$target.partial" "$target"
    ) 9>"$cache/rootfs-$architecture.lock"
}
