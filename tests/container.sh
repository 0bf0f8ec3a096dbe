#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The CPU image of deploy/container/Containerfile: built from this checkout, with a Debian made by mmdebstrap where no registry of
# images is in reach; then, in the image and as its user: the program, its user, two ranks over MPI that train. Not in the suite: it
# needs root, buildah, mmdebstrap and the network.
#   tests/container.sh
# 77: it cannot run here, and says why.
set -euo pipefail
cd "$(dirname "$0")/.."
skip() { echo "SKIPPED: $*" >&2 && exit 77; }
[ "$(id -u)" = 0 ] || skip "building an image without its user's name spaces needs root"
for tool in buildah mmdebstrap git; do
    command -v $tool >/dev/null || skip "$tool is not installed"
done
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
top=$(mktemp -d /var/tmp/atoll-container.XXXXXX)
trap 'rm -rf --one-file-system "$top"' EXIT

base=debian:12-slim
if ! timeout 60 buildah pull -q docker.io/library/$base >"$top/log" 2>&1; then
    base=localhost/debian-12
    mmdebstrap --quiet --variant=minbase --include=ca-certificates bookworm "$top/debian.tar" >"$top/log" 2>&1
    mkdir "$top/base"
    cp "$top/debian.tar" "$top/base/"
    printf 'FROM scratch\nADD debian.tar /\n' >"$top/base/Containerfile"
    buildah bud -q -t $base "$top/base" >>"$top/log" 2>&1 || { tail -n 20 "$top/log" && exit 1; }
fi
git clone -q --depth 1 "file://$PWD" "$top/src"
# The machine's settings for apt (a mirror, a proxy) are those of the build.
apt-config dump | grep -E '^Acquire::(http|https|Check-)' >"$top/99host" || :
buildah bud --build-arg DEBIAN=$base --volume "$top/99host:/etc/apt/apt.conf.d/99host:ro" \
    -f deploy/container/Containerfile -t localhost/atoll:cpu "$top/src" >"$top/log" 2>&1 || { tail -n 30 "$top/log" && exit 1; }

box=$(buildah from -q localhost/atoll:cpu)
trap 'buildah rm "$box" >/dev/null 2>&1 || :; rm -rf --one-file-system "$top"' EXIT
inside() { buildah run "$box" -- "$@"; }
[ "$(inside id -un)" = atoll ] || { echo "the image's user is not atoll" && exit 1; }
inside /usr/bin/atoll --version
inside /bin/sh -c 'test -z "$(command -v gcc)"' || { echo "the image has a compiler" && exit 1; }
inside /bin/sh -ec '
    mkdir /tmp/run && cd /tmp/run
    for i in $(seq 400); do echo "the house is blue and river $i runs over trees"; echo; done >text
    atoll data --out data --sites 1 text >data.out 2>&1 || { cat data.out; exit 1; }
    cat >run.yaml <<END
model: {layers: 2, heads: 2, d_model: 32, max_seq_len: 32}
data: {tokenizer: bytes, eval: [data/eval-*.bin]}
train: {steps: 4, batch_tokens: 256, seq_len: 32}
END
    mpirun --bind-to none --oversubscribe -n 2 atoll train --config run.yaml --data.train "data/train-0-*.bin" --run.dir run 2>&1 | tail -n 3
    test -s run/metrics.jsonl'
inside /usr/bin/test -x /usr/bin/atoll-ranks || { echo "atoll-ranks is not in the image" && exit 1; }
echo "the image by package: built on $base, its user is atoll, it has no compiler, two ranks train"
