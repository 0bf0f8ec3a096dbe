#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The wheel in a bare Debian without a compiler: two sites of tests/python/plain.py and an aggregator, from the wheel alone. Not in the
# suite: it needs root, mmdebstrap and the network.
#   tests/wheel.sh WHEEL [RELEASE...]      releases: 12 13; WHEEL: what deploy/package.sh wheel made
# What was seen is added to tests/python/results.csv as the cases wheel-12, wheel-13. 77: it cannot run here, and says why.
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=${1:?give the wheel}
shift
skip() { echo "SKIPPED: $*" >&2 && exit 77; }
[ "$(id -u)" = 0 ] || skip "a chroot needs root"
command -v mmdebstrap >/dev/null || skip "mmdebstrap is not installed"
[ -z "${WHEEL_MOUNTS:-}" ] && exec env WHEEL_MOUNTS=own unshare -m --propagation private -- "$0" "$wheel" "$@"
machine="$(nproc) x $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1 | tr ',' ' ')"
top=$(mktemp -d /var/tmp/atoll-wheel.XXXXXX)
trap 'rm -rf --one-file-system "$top"' EXIT

for release in ${*:-12 13}; do
    name=$([ "$release" = 12 ] && echo bookworm || echo trixie)
    bare=$top/$release
    mmdebstrap --quiet --variant=minbase --include=python3-venv "$name" "$bare" >"$top/log" 2>&1 || {
        tail -n 5 "$top/log"
        exit 1
    }
    mkdir "$bare/root/run"
    cp "$wheel" tests/python/plain.py "$bare/root/run/"
    cat >"$bare/root/run/tensors.json" <<'END'
{"tensors": [{"name": "experts.0.up", "shape": [3, 5, 7], "init": "normal", "std": 0.02, "layer": 0}, {"name": "offset", "shape": [1009]}]}
END
    cat >"$bare/root/run/run.yaml" <<'END'
run: {name: bare, seed: 7}
outer: {sites: [a, b], sync_every: 6, codec: int4}
model: {tensors: tensors.json}
train: {steps: 24}
site: {aggregator: "127.0.0.1:7443", aggregator_name: localhost}
tls: {dir: tls}
serve: {listen: "127.0.0.1:7443", dir: aggregator}
END
    mount -t proc proc "$bare/proc"
    chroot "$bare" /bin/bash -euo pipefail -c '
        cd /root/run
        ! command -v cc gcc clang || { echo "a compiler is here"; exit 1; }
        python3 -m venv env && env/bin/pip install --quiet --no-index ./*.whl
        export PATH=$PWD/env/bin:$PATH
        atoll cert authority --run bare --dir tls >/dev/null
        atoll cert issue --role aggregator --host localhost,127.0.0.1 --dir tls >/dev/null
        for s in a b; do atoll cert issue --role site --name $s --dir tls >/dev/null; done
        atoll serve --config run.yaml >serve.out 2>&1 &
        python3 plain.py run.yaml a.checkpoint 6 site.name=a run.dir=a >a.out 2>&1 &
        python3 plain.py run.yaml b.checkpoint 6 site.name=b run.dir=b >b.out 2>&1
        wait'
    umount "$bare/proc"
    state() { sed -n 's/^step 24, outer state \([0-9a-f]*\),.*/\1/p' "$bare/root/run/$1.out"; }
    [ -n "$(state a)" ] && [ "$(state a)" = "$(state b)" ] || { tail -n 5 "$bare"/root/run/*.out && exit 1; }
    echo "Debian $release, no compiler: both sites end in $(state a)"
    echo "$(date +%FT%T),$machine,$(git rev-parse --short=12 HEAD),wheel-$release,4,0,$(state a | cut -c 1-16)" >>tests/python/results.csv
done
