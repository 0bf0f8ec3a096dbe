#!/bin/sh
# The exact set must not contain a contracted operation: compiles exact.cu as the build does and reads its PTX.
# Allowed are the fma of IEEE division, which nvcc hides in div.rn. Then the same without --fmad=false must show
# some, or this test looks for nothing.
#   fma.sh [nvcc]
set -eu
nvcc=${1:-nvcc}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
ptx() {
    "$nvcc" -std=c++17 -arch=compute_90 -Xcompiler -Wall -I. -ptx "$@" kernels/cuda/exact.cu -o "$out/x.ptx"
    grep -cE '^[[:space:]]*(fma|mad)(\.rn|\.rz|\.approx|\.ftz)*\.f(32|64)' "$out/x.ptx" || true
}
with=$(ptx)
without=$(ptx --fmad=false)
inexact=$(grep -cE 'div\.(approx|full)|\.ftz|(rcp|sqrt)\.approx' "$out/x.ptx" || true)
echo "exact set: $without contracted operations, $inexact approximate ones (contraction allowed: $with)"
[ "$without" -eq 0 ] && [ "$inexact" -eq 0 ] && [ "$with" -gt 0 ]
