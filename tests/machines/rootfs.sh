# shellcheck shell=bash
# Sourced by both machines: the Debian root file system that they boot, and the few helpers that they share.

shopt -s inherit_errexit # a failure within $(…) is one too

cache=$(realpath --canonicalize-missing "${BASH_SOURCE[0]%/*}/../../target/machines")

suite=trixie # systemd 257; the product asks for 254, which Debian 12 does not have
# Beyond systemd: what the product needs (SQLite, see decision 13), is driven with by its users (curl) and by the test
# suite (python3).
packages=systemd,systemd-sysv,dbus,libsqlite3-0,curl,python3,procps

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

# build_rootfs ARCHITECTURE [MMDEBSTRAP-OPTION...]: prints where the root file system is, once it is there. The name
# carries a checksum of everything it is made from: this file and the options.
build_rootfs() {
    local architecture=$1 target
    shift
    target=$cache/rootfs-$architecture-$(echo "$*" | cat "${BASH_SOURCE[0]}" - | cksum | cut -d' ' -f1)
    mkdir -p "$cache"
    chmod 0700 "$cache" # it is about to hold set-user-id programs that nobody updates
    (
        flock 9
        [[ ! -e $target ]] || exit 0
        rm -rf "$cache/rootfs-$architecture"-* # of other inputs, or half done
        echo "building a Debian $suite root file system for $architecture" >&2
        # Documentation and translations are left out to keep the machines small. These options must not stay behind
        # in the machine, where they would drop the man pages of the package under test, nor must the host's names.
        # In a mount namespace of its own: were it killed, its /proc and /dev would otherwise stay mounted in there.
        unshare --mount mmdebstrap --quiet --variant=minbase --architectures="$architecture" --format=directory --include="$packages" \
            --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
            --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt=force-unsafe-io \
            --customize-hook='rm "$1/etc/dpkg/dpkg.cfg.d/99mmdebstrap" "$1/etc/hostname" "$1/etc/resolv.conf"' \
            "$@" "$suite" "$target.partial" >&2
        mv "$target.partial" "$target"
    ) 9>"$cache/rootfs-$architecture.lock"
    echo "$target"
}
