#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: a flag of deploy/hardening.cmake that does not reach the program (docs/security.md 1, "The program").
#   tests/structure/hardened.sh ATOLL BUILD checked|unchecked PROCESSOR     unchecked: built without FORTIFY, as sanitizers are
set -eu
atoll=$1 build=$2 checks=$3 processor=$4
if ! command -v readelf >/dev/null; then
    echo "SKIPPED: readelf is not installed (binutils)"
    exit 77
fi
failed=0
need() { # PATTERN in the file, or say so
    if ! grep -qE "$1" "$2"; then
        echo "$atoll: no $3"
        failed=1
    fi
}
seen=$(mktemp -d)
trap 'rm -r "$seen"' EXIT
readelf -hW "$atoll" >"$seen/head"
readelf -lW "$atoll" >"$seen/segments"
readelf -dW "$atoll" >"$seen/dynamic"
readelf -W --dyn-syms "$atoll" >"$seen/symbols"
need 'Type: *DYN' "$seen/head" "position-independent program (-pie)"
need 'FLAGS_1.*PIE' "$seen/dynamic" "position-independent program (-pie)"
need 'BIND_NOW' "$seen/dynamic" "immediate binding (-z now)"
need 'GNU_RELRO' "$seen/segments" "read-only tables (-z relro)"
need 'GNU_STACK .* RW ' "$seen/segments" "stack that is not executable (-z noexecstack)"
need '__stack_chk_fail' "$seen/symbols" "stack protector (-fstack-protector-strong)"
if grep -q 'NODLOPEN' "$seen/dynamic"; then
    echo "$atoll: -z nodlopen, with which no module of the GPU can be opened"
    failed=1
fi
if [ "$checks" = checked ]; then
    for call in memcpy snprintf vsnprintf; do
        need " __${call}_chk" "$seen/symbols" "checked $call (_FORTIFY_SOURCE)"
    done
fi

# Indirect branches and returns. The linker marks the program only if every object is marked, those of the C library too, which
# Debian 12's are not: so our own objects are asked.
case $processor in
x86_64 | AMD64) mark='IBT, SHSTK' flag=-fcf-protection=full ;;
aarch64 | arm64) mark='BTI, PAC' flag=-mbranch-protection=standard ;;
*) mark="" ;;
esac
if [ -n "$mark" ]; then
    for part in kernels inner outer proto; do
        [ -d "$build/$part" ] && find "$build/$part" -name '*.c.o' >>"$seen/objects"
    done
    while read -r object; do
        readelf -nW "$object" 2>/dev/null | grep -q "$mark" && continue
        echo "$object: not marked $mark ($flag)"
        failed=1
    done <"$seen/objects"
    readelf -nW "$atoll" 2>/dev/null | grep -q "$mark" ||
        echo "the program itself is not marked $mark: the start files of this C library are not"
fi
exit "$failed"
