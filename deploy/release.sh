#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a release consists of, in build/release/VERSION: source archive, wheel, source distribution, Debian packages of this system's
# release, bill of materials, licences of the libraries, SHA256SUMS and its signature.
#   deploy/release.sh [--key FILE] [--tests COMMAND]
#     --key FILE       private key (PEM) that signs SHA256SUMS; without it there is no signature, and the last line says so.
#                      To check: openssl pkeyutl -verify -rawin -pubin -inkey public.pem -in SHA256SUMS -sigfile SHA256SUMS.sig
#     --tests COMMAND  must succeed first; deploy/run-tests.sh without it
# Refuses a tree with changes, a version that CHANGELOG.md and CITATION.cff do not name, and a red suite. Everything is built twice, and
# the two must have equal bytes. Packages for another release of Debian: the same command there, with the same commit.
set -eu
cd "$(dirname "$0")/.."
key="" tests=deploy/run-tests.sh
refuse() {
    echo "release: $*" >&2
    exit 4
}
while [ $# -gt 0 ]; do
    case $1 in
    --key) key=${2:?} && shift ;;
    --tests) tests=${2:?} && shift ;;
    -h | --help) sed -n '3,11s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) refuse "$1 is no option; --help lists them" ;;
    esac
    shift
done
[ -z "$key" ] || [ -r "$key" ] || refuse "$key cannot be read"
[ -z "$(git status --porcelain)" ] || refuse "the tree has changes: commit them, or put them aside (git status)"
version=$(sed -n 's/^project(atoll VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
grep -q "^version: $version\$" CITATION.cff || refuse "CITATION.cff names another version than $version, that of CMakeLists.txt"
grep -q "^## $version\$" CHANGELOG.md || refuse "CHANGELOG.md has no section \"## $version\": name the changes of this version there"
echo "release  $version, commit $(git rev-parse --short=12 HEAD): tests" >&2
sh -c "$tests" || refuse "the tests fail: $tests"
[ -z "$(git status --porcelain)" ] || refuse "the tests changed the tree (git status)"

out=build/release/$version tree=build/release/tree
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
# made FOLDER: all files of the release, from a clone at a fixed place, which has the same name both times
made() {
    echo "release  builds $1" >&2
    rm -rf "$tree" "$1"
    mkdir -p "$1"
    git clone -q . "$tree"
    git archive --format=tar --prefix="atoll-$version/" HEAD | gzip -9n >"$1/atoll-$version.tar.gz"
    (cd "$tree" && deploy/package.sh wheel >release.log 2>&1 && cp build/dist/* "$OLDPWD/$1/" && rm -rf build/dist &&
        deploy/package.sh deb >>release.log 2>&1 && cp build/dist/* "$OLDPWD/$1/" && mkdir shipped &&
        for deb in build/dist/atoll_*.deb build/dist/atoll-cuda_*.deb; do
            [ ! -e "$deb" ] || dpkg-deb -x "$deb" shipped
        done && deploy/sbom.sh shipped/usr/bin/atoll shipped >"$OLDPWD/$1/atoll-$version.cdx.json") || {
        tail -n 20 "$tree/release.log" >&2
        refuse "a package was not made: $tree/release.log"
    }
    deploy/licences.sh "$tree/licences" "$tree/build/deb/bin/atoll"
    (cd "$tree/licences" && for package in *; do printf '%s\n' "==== $package ====" && cat "$package"; done) >"$1/third-party-licences.txt"
    (cd "$1" && sha256sum -- *) >"$tree/SHA256SUMS"
    mv "$tree/SHA256SUMS" "$1/SHA256SUMS"
}
made "$out"
made build/release/again
if ! cmp -s "$out/SHA256SUMS" build/release/again/SHA256SUMS; then
    diff "$out/SHA256SUMS" build/release/again/SHA256SUMS >&2 || :
    refuse "two builds of one commit differ in these files"
fi
rm -rf "$tree" build/release/again
if [ -n "$key" ]; then
    openssl pkeyutl -sign -rawin -inkey "$key" -in "$out/SHA256SUMS" -out "$out/SHA256SUMS.sig"
fi
ls -l "$out"
[ -n "$key" ] || echo "release: not signed (--key FILE)" >&2
