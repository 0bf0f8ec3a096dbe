#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: README's two commands on a fresh Debian. For each release an empty system (debootstrap), a clone of this
# commit inside, then both commands, and the build of everything with gcc and with clang. Not in the suite: it takes an hour and the
# network. By hand, for a release, and after a change of what is installed or how it is built:
#   tests/e2e/debian.sh [OPTION...] [RELEASE...] [-- ARGUMENT OF CTEST...]      releases: 12 13
#   --demo  --tests  --build-only   these parts alone: deploy/run-demo.sh, deploy/run-tests.sh, the builds with gcc and clang
#   --target NAME                   the builds: this target in place of everything
#   --compiler NAME                 the builds: gcc or clang alone
#   --dir DIR                       the systems are in DIR/12, DIR/13; what is there is used again, with the new commit
#   --keep                          they stay, for a look inside and for --dir (a new folder below /var/tmp otherwise)
# What was measured is added to tests/e2e/debian.csv: date, machine, commit, debian, compiler, command, seconds, result (exit code, or
# what the command ends with). Needs root, debootstrap and the sources that apt uses here. 77: it cannot run here, and says why.
set -euo pipefail
cd "$(dirname "$0")/../.."
repository=$PWD
csv=$repository/tests/e2e/debian.csv

skip() {
    echo "SKIPPED: $*" >&2
    exit 77
}
wrong() {
    echo "debian: $*" >&2
    exit 4
}

[ "$(id -u)" = 0 ] || skip "a chroot needs root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
[ -z "${DEBIAN_MOUNTS:-}" ] && unshare -m true 2>/dev/null &&
    exec env DEBIAN_MOUNTS=own unshare -m --propagation private -- "$0" "$@" # what is mounted here goes with this process
[ -n "${DEBIAN_MOUNTS:-}" ] || skip "no mounts of its own (unshare -m)"

releases="" parts="" target="" compilers="gcc clang" top="" keep=""
while [ $# -gt 0 ]; do
    case $1 in
    12 | 13) releases="$releases $1" ;;
    --demo | --tests) parts="$parts ${1#--}" ;;
    --build-only) parts="$parts build" ;;
    --target) target=$2 && shift ;;
    --compiler) compilers=$2 && shift ;;
    --dir) top=$2 keep=yes && shift ;;
    --keep) keep=yes ;;
    -h | --help) sed -n '3,14s/^# \{0,1\}//p' "$0" && exit 0 ;;
    --) shift && break ;;
    *) wrong "$1 is no option and no release; --help lists them" ;;
    esac
    shift
done
[ -n "$releases" ] || releases="12 13"
[ -n "$parts" ] || parts="demo tests build"
[ -n "$top" ] || top=$(mktemp -d /var/tmp/atoll-debian.XXXXXX)
mkdir -p "$top"
commit=$(git rev-parse --short=12 HEAD)
[ -z "$(git status --porcelain --untracked-files=no -- . ':!tests/e2e/debian.csv')" ] ||
    echo "debian: what is not committed is not in the clone" >&2
machine="$(nproc) x $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1 | tr ',' ' ')"

# The server that this machine's apt has Debian from.
mirror() {
    apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null | sort -u | grep '/debian/*$' | head -n 1
}
codename() { case $1 in 12) echo bookworm ;; 13) echo trixie ;; esac; }

# An empty system, and what this machine needs to reach the server: proxies, certificates, names.
system() {
    from=$(mirror)
    debootstrap --variant=minbase --include=ca-certificates,git "$(codename "$1")" "$root" "${from:-http://deb.debian.org/debian}" \
        >"$top/$1.debootstrap.log" 2>&1 || wrong "debootstrap: $(tail -n 3 "$top/$1.debootstrap.log")"
    apt-config dump | grep -E '^Acquire::(http|https|Check-)' >"$root/etc/apt/apt.conf.d/99host" || :
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
        cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/"
        chroot "$root" update-ca-certificates >/dev/null 2>&1
    fi
}
mounts() {
    for place in proc sys dev; do mount --rbind "/$place" "$root/$place"; done
    mount -t tmpfs none "$root/dev/shm"
    mount -t tmpfs none "$root/run"
}
checkout() {
    [ -d "$root/root/atoll" ] || git clone -q --no-hardlinks "$repository" "$root/root/atoll"
    git -C "$root/root/atoll" fetch -q "$repository" HEAD
    git -C "$root/root/atoll" checkout -q -f FETCH_HEAD
}
inside() { # inside COMMAND...: with nothing of this machine's environment but proxies
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
        $(env | grep -iE '^(http|https|no)_proxy=' || :) sh -c 'cd /root/atoll && exec "$@"' sh "$@"
}

failed=0
# measured RELEASE COMPILER COMMAND...: runs it, says and books how it ended
measured() {
    release=$1 compiler=$2
    shift 2
    log=$top/$release.$compiler.$(basename "${1//*=/}").log
    echo "Debian $release, $compiler: $*" >&2
    began=$(date +%s) code=0
    inside env "$@" >"$log" 2>&1 </dev/null || code=$?
    seconds=$(($(date +%s) - began))
    result="exit code $code"
    summary=$(sed -n 's/^\([0-9]*\)% tests passed, \([0-9]*\) tests failed out of \([0-9]*\)$/\2 of \3 tests failed/p; s/^  two sites together *//p' "$log" |
        tail -n 1 | sed 's/  .*//')
    [ -z "$summary" ] || result="$result; $summary"
    [ "$code" = 0 ] || { failed=1 && tail -n 30 "$log" >&2; }
    [ -s "$csv" ] || echo "date,machine,commit,debian,compiler,command,seconds,result" >"$csv"
    echo "$(date -u +%Y-%m-%dT%H:%M:%S),$machine,$commit,$release,$compiler,$(echo "$*" | tr ',' ' '),$seconds,$result" >>"$csv"
    echo "Debian $release, $compiler: $result after $seconds s; $log" >&2
}

for release in $releases; do
    root=$top/$release
    [ -x "$root/bin/sh" ] || system "$release"
    mounts
    checkout
    gcc="gcc $(inside apt-cache depends gcc | sed -n 's/.*Depends: gcc-\([0-9]*\).*/\1/p' | head -n 1)"
    for part in $parts; do
        case $part in
        demo) measured "$release" "$gcc" deploy/run-demo.sh --dir /tmp/run-demo ;;
        tests) measured "$release" "$gcc" deploy/run-tests.sh "$@" ;;
        build)
            inside deploy/install.sh >"$top/$release.install.log" 2>&1 || wrong "install.sh: $(tail -n 3 "$top/$release.install.log")"
            for compiler in $compilers; do
                name=$gcc
                if [ "$compiler" = clang ]; then
                    inside deploy/install.sh clang libomp-dev >>"$top/$release.install.log" 2>&1
                    name="clang $(inside clang -dumpversion | cut -d . -f 1)"
                fi
                measured "$release" "$name" CC="$compiler" ATOLL_BUILD="build-$compiler" ATOLL_WERROR=ON deploy/build.sh ${target:+"$target"}
            done
            ;;
        esac
    done
    umount -R -l "$root/proc" "$root/sys" "$root/dev" "$root/run"
    [ -n "$keep" ] || rm -rf --one-file-system "$root"
done
if [ -n "$keep" ]; then echo "debian: the systems are in $top" >&2; fi
exit $failed
