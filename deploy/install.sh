#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages (12 or 13) that building and testing Atoll needs, and only those that are missing.
#   deploy/install.sh [more packages]
# Needs root or sudo, and the network, only if something is missing. Other systems: install the equivalents by hand.
set -eu
packages="gcc g++ libc6-dev make cmake ninja-build pkg-config libdnnl-dev libopenmpi-dev openmpi-bin libgrpc-dev
libprotobuf-c-dev protobuf-c-compiler libssl-dev libyaml-dev libjansson-dev libpcre2-dev libutf8proc-dev
zlib1g-dev libzstd-dev libcmocka-dev libcivetweb-dev $*"

missing=""
if command -v dpkg-query >/dev/null; then
    for package in $packages; do
        case $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) in
        *"ok installed") ;;
        *) missing="$missing $package" ;;
        esac
    done
else
    echo "install: this is no Debian; make sure the equivalents of these are there:" $packages >&2
fi
[ -n "$missing" ] || exit 0

root=""
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "install: these packages are missing, and installing them needs root or sudo:" >&2
        echo "   apt-get install$missing" >&2
        exit 4
    fi
    root="sudo"
fi
echo "install  $(echo $missing | wc -w) packages, a few minutes:$missing" >&2
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
if ! { $root apt-get update && $root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; } \
    </dev/null >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    echo "install: apt-get failed (log: $log). Without a network, install these from a mirror:$missing" >&2
    exit 2
fi
rm -f "$log"
