#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: the documentation names keys or settings that the program does not have.
. "$(dirname "$0")/lib.sh"

"$atoll" train --help-keys >keys.md
diff -u "$repository/docs/configuration.md" keys.md ||
    fail "docs/configuration.md is not what the key table says: atoll train --help-keys > docs/configuration.md"

"$atoll" wan --help-keys >keys.md
sed -n '/^## wan$/,$p' "$repository/docs/wan.md" | diff -u - keys.md ||
    fail "docs/wan.md does not end as the key table says: atoll wan --help-keys"
# Every whole topology of the page.
awk '/^```/ { open = !open; if (open) n++; next } open { print > ("topology-" n) }' "$repository/docs/wan.md"
for block in topology-*; do
    ! grep -q '^wan:' "$block" || "$atoll" wan --topology "$block" --print >/dev/null || fail "docs/wan.md: a topology is refused"
done

for config in "$repository"/deploy/examples/*.yaml; do
    site=$(sed -n 's/^ *sites: \[\([a-z]*\).*/\1/p' "$config")
    "$atoll" train --config "$config" --site.name "$site" --dry-run --all >dry.out 2>&1 || fail "$config does not pass --dry-run"
    grep -q "^model:" dry.out || fail "$config: --dry-run does not print the resolved configuration"
done
# Every block of docs/methods.md, over a model of 24 layers.
awk '/^```/ { open = !open; if (open) n++; next } open { print > ("method-" n ".yaml") }' "$repository/docs/methods.md"
for block in method-*.yaml; do
    { cat "$block"; echo "model: {layers: 24, heads: 4, d_model: 32}"; } >"full-$block"
    "$atoll" train --config "full-$block" --site.aggregator localhost:1 --outer.sites a --dry-run >dry.out 2>&1 ||
        { cat "$block" dry.out; fail "docs/methods.md: a block does not pass --dry-run"; }
done

echo "configuration page, examples and methods are those of the program"
