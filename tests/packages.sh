#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The Debian packages in an empty Debian without a compiler: they install, the units are right, and an operator's first day works:
# certificates, data, an aggregator, two sites, metrics, a relay, a renewed certificate, each by the ExecStart line of its unit as the
# user atoll; then the packages are removed, and the run is still there. Not in the suite: it needs root, mmdebstrap and the network.
#   tests/packages.sh FOLDER [RELEASE...]     FOLDER: what deploy/package.sh deb made, one set for each release; releases: 12 13
# What was seen is added to tests/e2e/debian.csv. 77: it cannot run here, and says why.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath "${1:?give the folder of the packages}")
shift
skip() { echo "SKIPPED: $*" >&2 && exit 77; }
[ "$(id -u)" = 0 ] || skip "a chroot needs root"
command -v mmdebstrap >/dev/null || skip "mmdebstrap is not installed"
[ -n "${PACKAGES_MOUNTS:-}" ] || exec env PACKAGES_MOUNTS=own unshare -m --propagation private -- "$0" "$folder" "$@"
machine="$(nproc) x $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1 | tr ',' ' ')"
top=$(mktemp -d /var/tmp/atoll-packages.XXXXXX)
trap '[ -n "${PACKAGES_KEEP:-}" ] || rm -rf --one-file-system "$top"' EXIT

for release in ${*:-12 13}; do
    name=$([ "$release" = 12 ] && echo bookworm || echo trixie)
    bare=$top/$release began=$(date +%s)
    compgen -G "$folder/atoll_*~deb${release}_*.deb" >/dev/null || skip "no packages for Debian $release in $folder"
    mmdebstrap --quiet --variant=minbase --include=ca-certificates,systemd,curl "$name" "$bare" >"$top/log" 2>&1 || {
        tail -n 5 "$top/log"
        exit 1
    }
    apt-config dump | grep -E '^Acquire::(http|https|Check-)' >"$bare/etc/apt/apt.conf.d/99host" || :
    cp /etc/resolv.conf "$bare/etc/resolv.conf"
    mkdir "$bare/root/packages"
    cp "$folder"/*~deb"${release}"_*.deb "$bare/root/packages/"
    cp tests/packages-first-day.sh "$bare/root/"
    mount -t proc proc "$bare/proc"
    mount --rbind /dev "$bare/dev"
    code=0
    chroot "$bare" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 $(env | grep -iE '^(http|https|no)_proxy=' || :) \
        /bin/bash /root/packages-first-day.sh >"$top/$release.log" 2>&1 || code=$?
    umount -R -l "$bare/dev" "$bare/proc"
    tail -n $((code ? 40 : 8)) "$top/$release.log"
    echo "$(date -u +%Y-%m-%dT%H:%M:%S),$machine,$(git rev-parse --short=12 HEAD),$release,none,tests/packages.sh,$(($(date +%s) - began)),exit code $code" \
        >>tests/e2e/debian.csv
    [ "$code" = 0 ] || exit 1
done
