#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: settings of docs/methods.md that are accepted and do not run. Every block of its section 1 trains for 20
# steps at two sites, or at one that is its own aggregator: with a round every 4 steps (slices: as they are) and at most 4
# fragments, the rest as the page has it. Both sites end with the same outer parameters.
. "$(dirname "$0")/lib.sh"
steps=20 checkpoint_every=20
configure a,b
awk '/^## / { section = $2 } /^```/ { open = !open; if (open) n++; next } open && section == "1." { print > ("method-" n ".yaml") }' \
    "$repository/docs/methods.md"

# arguments BLOCK: "section.key value" a line, lists and the map of outer.interval_schedule without brackets and blanks
arguments() {
    sed 's/: {rounds: \([0-9]*\), factor: \([0-9]*\), most: \([0-9]*\)}/: [\1, \2, \3]/' "$1" | awk '{ text = text " " $0 }
        END {
            while (match(text, /[a-z]+: *{[^}]*}/)) {
                part = substr(text, RSTART, RLENGTH); text = substr(text, RSTART + RLENGTH)
                section = part; sub(/:.*/, "", section); sub(/^[a-z]+: *{/, "", part); sub(/}$/, "", part)
                while (match(part, /\[[^]]*\]/)) {
                    list = substr(part, RSTART + 1, RLENGTH - 2); gsub(/, */, ";", list)
                    part = substr(part, 1, RSTART - 1) list substr(part, RSTART + RLENGTH)
                }
                count = split(part, pair, /, */)
                for (i = 1; i <= count; i++) {
                    key = pair[i]; value = pair[i]; gsub(/^ *| *:.*/, "", key); sub(/^[^:]*: */, "", value); gsub(/;/, ",", value)
                    print section "." key, value
                }
            }
        }'
}

# shortened BLOCK: the arguments of a run of 20 steps
shortened() {
    arguments "$1" >pairs
    every=$(sed -n 's/^outer.sync_every //p' pairs)
    sliced=$(lines "outer.partition slices" pairs)
    while read -r key value; do
        case $sliced$key in
        0outer.sync_every) value=4 ;;
        0outer.moment1_every | 0outer.moment2_every) value=$((value > every ? 8 : 4)) ;;
        0outer.interval_schedule) value=2,2,8 ;;
        0outer.momentum_warmup | 0outer.momentum_cooldown) value=2 ;;
        0outer.fragments) value=$((value < 4 ? value : 4)) ;;
        0outer.overlap_steps) value=$((value == every ? 4 : value < 3 ? value : 3)) ;;
        esac
        printf -- '--%s %s ' "$key" "$value"
    done <pairs
}

blocks=0
for block in method-*.yaml; do
    settings=$(shortened "$block")
    rm -rf a b aggregator serve.out a.out b.out
    case $settings in
    *"--site.aggregator self"*) # one site: it is compared with nothing here, but in one_site.sh
        train a
        ends 0 "$pid" "site a, its own aggregator"
        cp -r a b
        ;;
    *) undisturbed ;;
    esac
    [ -n "$(final a)" ] && [ "$(final a | cut -d' ' -f1)" = "$(final b | cut -d' ' -f1)" ] ||
        fail "docs/methods.md: $settings: the sites end with different outer parameters"
    [ "$(rounds a)" -ge 2 ] || fail "docs/methods.md: $settings: $(rounds a) rounds in 20 steps"
    blocks=$((blocks + 1))
done
[ "$blocks" -ge 14 ] || fail "docs/methods.md has $blocks blocks in its section 1"
echo "$blocks blocks of docs/methods.md ran for 20 steps at two sites"
