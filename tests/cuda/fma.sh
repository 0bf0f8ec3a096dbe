#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The exact set must not contain a contracted operation: compiles its files as the build does and reads their PTX.
# Allowed are the fma of IEEE division, which nvcc hides in div.rn. Then the same without --fmad=false must show
# some in each file where a product meets a sum, or this test looks for nothing.
#   fma.sh [nvcc]
set -eu
nvcc=${1:-nvcc}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
ptx() { # file, flags
    file=$1
    shift
    "$nvcc" -std=c++17 -arch=compute_90 -Xcompiler -Wall -I. -ptx "$@" "kernels/cuda/$file.cu" -o "$out/x.ptx"
    grep -cE '^[[:space:]]*(fma|mad)(\.rn|\.rz|\.approx|\.ftz)*\.f(32|64)' "$out/x.ptx" || true
}
for file in exact blocks chunks signs; do
    with=$(ptx $file)
    without=$(ptx $file --fmad=false)
    inexact=$(grep -cE 'div\.(approx|full)|\.ftz|(rcp|sqrt)\.approx' "$out/x.ptx" || true)
    echo "exact set, $file: $without contracted operations, $inexact approximate ones (contraction allowed: $with)"
    [ "$without" -eq 0 ] && [ "$inexact" -eq 0 ]
    [ $file = chunks ] || [ "$with" -gt 0 ]
done
