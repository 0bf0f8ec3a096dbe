#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Registers, shared memory and spills of every kernel, one line each, from ptxas. No GPU is needed. A hot kernel may spill 16
# bytes, which a bound on its registers costs (attention_bwd_keys: 12, for a third block a multiprocessor). The last line is
# "N kernels, N with spills, N of them hot"; it fails when a hot kernel spills more.
#   cuda_registers.sh [architecture, default 90a]
set -eu
cd "$(dirname "$0")/../.."
arch=${1:-90a}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for f in kernels/cuda/*.cu; do
    flags=
    case $f in *fp8.cu | *exact.cu | *blocks.cu | *chunks.cu | *signs.cu) flags=--fmad=false ;; esac
    nvcc -std=c++17 -gencode "arch=compute_$arch,code=sm_$arch" $flags -I. -Xptxas -v -c "$f" -o "$out/x.o" 2>>"$out/log"
done
if command -v c++filt >/dev/null; then c++filt <"$out/log" >"$out/names"; else cp "$out/log" "$out/names"; fi
awk '
/Compiling entry function/ { name = $0; sub(/.*function .(void )?/, "", name); sub(/\(.*/, "", name) }
/bytes stack frame/        { stack = $1; stores = $5; loads = $9 }
/Used [0-9]+ registers/    {
    shared = 0
    for (i = 1; i < NF; i++) { if ($i == "Used") regs = $(i + 1); if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/) shared = $i }
    printf "%-48s %4d registers %6d B shared %4d B stack %4d B spilled\n", name, regs, shared, stack, stores + loads
    kernels++
    if (stores + loads > 0) { spilled++; if (stores + loads > 16 && name ~ /attention_|norm_|adamw|lamb_|xent|act_bwd|encode_|decode_|chunk_|delta|pack/) hot++ }
}
END { printf "%d kernels, %d with spills, %d of them hot\n", kernels, spilled, hot; exit hot > 0 }' "$out/names"
