#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Registers, shared memory and spills of every kernel, one line each, from ptxas. No GPU is needed. A hot kernel may spill 32
# bytes, which a bound on its registers costs for one more block a multiprocessor; attention.cu names those that do. The last
# line is "N kernels, N with spills, N of them hot, N above their bound"; it fails when a hot kernel spills more, or takes more
# registers than the blocks that a multiprocessor shall hold leave (65,536 / threads of them all).
#   cuda_registers.sh [architecture, default 90a]
set -eu
cd "$(dirname "$0")/../.."
arch=${1:-90a}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
exact=$(sed -n 's/^set_source_files_properties(\(.*\) PROPERTIES COMPILE_OPTIONS "--fmad=false")/ \1 /p' kernels/cuda/CMakeLists.txt)
[ -n "$exact" ] || { echo "cuda_registers: kernels/cuda/CMakeLists.txt names no file with --fmad=false" >&2; exit 1; }
for f in kernels/cuda/*.cu; do
    flags=
    case $exact in *" ${f##*/} "*) flags=--fmad=false ;; esac
    nvcc -std=c++17 -gencode "arch=compute_$arch,code=sm_$arch" $flags -I. -Xptxas -v -c "$f" -o "$out/x.o" 2>>"$out/log"
done
demangled=0
if command -v c++filt >/dev/null; then c++filt <"$out/log" >"$out/names"; demangled=1; else cp "$out/log" "$out/names"; fi
awk -v demangled=$demangled '
BEGIN {
    most["attention_fwd<64, 4, 64, false>"] = 128 # 4 blocks of 128 threads
    most["attention_bwd_keys<64, 4, 64, false>"] = most["attention_bwd_queries<64, 4, 64, false>"] = 168 # 3
    most["attention_bwd_queries<128, 4, 32, false>"] = 168
    most["norm_bwd<unsigned short, 8, 1, false>"] = most["norm_bwd<unsigned short, 8, 2, false>"] = 96 # 640 threads
    most["norm_bwd<unsigned short, 8, 4, false>"] = 128 # 512
}
/Compiling entry function/ { name = $0; sub(/.*function .(void )?/, "", name); sub(/\(.*/, "", name) }
/bytes stack frame/        { stack = $1; stores = $5; loads = $9 }
/Used [0-9]+ registers/    {
    shared = 0
    for (i = 1; i < NF; i++) { if ($i == "Used") regs = $(i + 1); if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/) shared = $i }
    printf "%-48s %4d registers %6d B shared %4d B stack %4d B spilled\n", name, regs, shared, stack, stores + loads
    kernels++
    if (name in most) { met++; if (regs > most[name]) { above++; print "above " most[name] ": " name } }
    if (stores + loads > 0) { spilled++; if (stores + loads > 32 && name ~ /attention_|norm_|adamw|lamb_|xent|act_bwd|encode_|decode_|chunk_|delta|pack/) hot++ }
}
END {
    for (name in most) bounds++
    printf "%d kernels, %d with spills, %d of them hot, %d above their bound\n", kernels, spilled, hot, above
    if (demangled && met < bounds) print bounds - met " bounds name no kernel"
    exit hot > 0 || above > 0 || (demangled && met < bounds)
}' "$out/names"
