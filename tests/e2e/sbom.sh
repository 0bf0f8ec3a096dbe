#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The bill of materials names every library that the program links, with the digest of the file that is there.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
atoll=$1
command -v python3 >/dev/null || { echo "SKIPPED: python3 is not installed"; exit 77; }
command -v ldd >/dev/null || { echo "SKIPPED: ldd is not installed"; exit 77; }
mkdir -p "$2"
"$here/../../deploy/sbom.sh" "$atoll" >"$2/sbom.json"
ldd "$atoll" >"$2/ldd"
python3 - "$2/sbom.json" "$2/ldd" <<'END'
import hashlib, json, os, sys
bom = json.load(open(sys.argv[1]))
assert bom["bomFormat"] == "CycloneDX" and bom["specVersion"] == "1.5"
assert bom["metadata"]["component"]["version"]
found = {c["bom-ref"]: c for c in bom["components"]}
assert len(found) == len(bom["components"])
for line in open(sys.argv[2]):
    path = next((w for w in line.split() if w.startswith("/")), None)
    if not path:
        continue
    c = found[os.path.realpath(path)]
    with open(os.path.realpath(path), "rb") as f:
        assert c["hashes"][0]["content"] == hashlib.sha256(f.read()).hexdigest(), path
    assert c["name"] and c["version"], path
print(len(found), "libraries")
END
# What a package holds has the names of the installed files, modules too.
mkdir -p "$2/root/usr/bin" "$2/root/usr/lib/atoll"
cp "$atoll" "$2/root/usr/bin/atoll"
cp "$atoll" "$2/root/usr/lib/atoll/libatoll_module.so"
"$here/../../deploy/sbom.sh" "$2/root/usr/bin/atoll" "$2/root" >"$2/root.json"
grep -q '"bom-ref": "/usr/lib/atoll/libatoll_module.so"' "$2/root.json" && ! grep -q "$2" "$2/root.json" ||
    { echo "FAILED: names of a package that is unpacked" && exit 1; }
! "$here/../../deploy/sbom.sh" "$2/nothing" 2>/dev/null || { echo "FAILED: no program, and no error"; exit 1; }
