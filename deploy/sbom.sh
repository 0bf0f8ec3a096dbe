#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A software bill of materials of the program: CycloneDX 1.5 as JSON on standard output, made from what the binary links.
#   deploy/sbom.sh [BINARY [ROOT]]        default: build/bin/atoll; ROOT: where a package is unpacked, paths are named as installed
# Each library: its file, SHA-256, and, where dpkg or rpm knows the file, package and version (purl). Modules that the program
# opens later (libatoll_*.so next to it, or where the package atoll-cuda puts them) and what they link are included.
set -eu
binary=${1:-build/bin/atoll}
root=${2:+$(readlink -f "$2")}
[ -x "$binary" ] || { echo "sbom.sh: $binary is no program: build it, or name it" >&2; exit 4; }
for tool in ldd sha256sum readlink; do
    command -v $tool >/dev/null || { echo "sbom.sh: needs $tool" >&2; exit 4; }
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
quote() { # a JSON string; the names here hold neither control characters nor much else
    printf '%s' "$1" | sed 's/[\\"]/\\&/g; s/.*/"&"/'
}
sha256() {
    sha256sum "$1" | cut -d' ' -f1
}
# owners PATH...: "PATH NAME VERSION" of each file that a Debian package holds. /lib may be a link to /usr/lib.
owners() {
    for path in "$@"; do printf '%s\n%s\n%s\n' "$path" "/usr$path" "${path#/usr}"; done | sort -u |
        xargs dpkg-query -S 2>/dev/null | sed -n 's/^\([^ ,:]*\)[^ ]*: \(.*\)/\1 \2/p' | sort -u >"$scratch/held"
    cut -d' ' -f1 "$scratch/held" | sort -u | xargs dpkg-query -W -f '${Package} ${Version}\n' 2>/dev/null |
        sort -u >"$scratch/versions"
    join "$scratch/held" "$scratch/versions" | awk '{ print $2, $1, $3 }' >"$scratch/owners"
}
# package_of PATH: "type/vendor name version", or nothing
package_of() {
    vendor=$(. /etc/os-release 2>/dev/null && echo "${ID:-linux}")
    if command -v dpkg-query >/dev/null; then
        awk -v a="$1" -v b="/usr$1" -v c="${1#/usr}" -v vendor="deb/$vendor" \
            '$1 == a || $1 == b || $1 == c { print vendor, $2, $3; exit }' "$scratch/owners"
    elif command -v rpm >/dev/null && rpm -qf "$1" >/dev/null 2>&1; then
        rpm -qf --qf "rpm/$vendor %{NAME} %{VERSION}-%{RELEASE}\n" "$1" | head -n 1
    fi
}
libraries() { # real paths of all shared objects
    directory=$(dirname "$(readlink -f "$binary")")
    {
        ldd "$binary"
        for module in "$directory"/libatoll_*.so "$directory"/../lib/atoll/libatoll_*.so; do
            [ ! -e "$module" ] || { echo "m => $module"; ldd "$module"; }
        done
    } | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (0x.*/\1/p' |
        while read -r path; do readlink -f "$path"; done | sort -u
}
version=$("$binary" --version | head -n 1)
all=$(libraries)
! command -v dpkg-query >/dev/null || owners $all
cat <<END
{
  "bomFormat": "CycloneDX",
  "specVersion": "1.5",
  "version": 1,
  "metadata": {
    "component": {
      "type": "application",
      "bom-ref": "atoll",
      "name": "atoll",
      "version": $(quote "$version"),
      "hashes": [{"alg": "SHA-256", "content": "$(sha256 "$binary")"}]
    }
  },
  "components": [
END
comma=""
for path in $all; do
    file=$(basename "$path") name="" found="" shown=${path#"$root"}
    set -- $(package_of "$path")
    if [ $# -eq 3 ]; then
        name=$2 found=$3
        purl=",
      \"purl\": $(quote "pkg:$1/$2@$(printf '%s' "$3" | sed 's/+/%2B/g; s/:/%3A/g')")"
    else
        name=${file%%.so*} purl=""
        case $file in *.so.*) found=${file#*.so.} ;; *) found=unknown ;; esac
    fi
    printf '%s    {\n      "type": "library",\n      "bom-ref": %s,\n      "name": %s,\n      "version": %s%s,\n' \
        "$comma" "$(quote "$shown")" "$(quote "$name")" "$(quote "$found")" "$purl"
    printf '      "hashes": [{"alg": "SHA-256", "content": "%s"}],\n' "$(sha256 "$path")"
    printf '      "properties": [{"name": "atoll:file", "value": %s}]\n    }' "$(quote "$shown")"
    comma=",
"
done
printf '\n  ]\n}\n'
