#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two versions of Atoll in one run: aggregator and sites of each version in every mix, one process after the other from the old one to
# the new one, amendments from either side, secure aggregation and a quorum. All of them end with the digests of the old version alone.
# What breaks if this fails: an upgrade of one site stops a run, or changes its bits.
#   tests/e2e/versions.sh OLD [NEW [SCRATCH]]     programs; NEW: build/bin/atoll
# OLD is the program of the last release: git worktree add DIR COMMIT, and ninja -C DIR/build atoll. About two minutes.
[ $# -ge 1 ] || { sed -n 's/^#   //p' "$0" >&2; exit 4; }
before=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
root=$(cd "$(dirname "$0")/../.." && pwd)
set -- "${2:-$root/build/bin/atoll}" "${3:-/tmp/atoll-versions.$$}"
. "$root/tests/e2e/lib.sh"
now=$atoll
"$before" --version >/dev/null || fail "$before does not run"

# The same configuration under the names that the old version has: docs/configuration.md, "Renamed keys", where that version has no
# new name.
old_names() {
    "$before" train --help-keys >before.keys
    awk 'FILENAME == "before.keys" { if ($0 ~ /^\| `[a-z]+\.[a-z0-9_]+` \| [^`]/) { split($0, x, "`"); has[x[2]] = 1 } next }
        FILENAME != "run.yaml" { if ($0 ~ /^\| `[a-z]+\.[a-z0-9_]+` \| `[a-z]+\.[a-z0-9_]+` \|$/) { split($0, x, "`"); if (has[x[2]]) former[x[4]] = x[2] } next }
        /^[a-z]+:/ { section = $1; sub(":", "", section) }
        /^  [a-z0-9_]+:/ { key = $1; sub(":", "", key); full = section "." key
            if (!has[full] && full in former) { split(former[full], x, "."); sub(key ":", x[2] ":") } }
        { print }' before.keys "$root/docs/configuration.md" run.yaml >run.old.yaml
    "$before" train --config run.old.yaml --dry-run --site.name a --data.train "data/train-0-*.bin" >dry.out 2>&1 ||
        fail "the old version does not read its configuration: $(cat dry.out)"
}

# as VERSION: the next process is of this version, with its configuration
as() {
    atoll=$now config=run.yaml
    [ "$1" = new ] || atoll=$before config=run.old.yaml
}
serve() {
    "$atoll" serve --config $config "$@" >>serve.out 2>&1 &
    serve_pid=$!
    processes="$processes $serve_pid"
}
train() {
    site=$1
    shift
    "$atoll" train --config $config --site.name "$site" --run.dir "$site" --data.train "data/train-$(part_of "$site")-*.bin" \
        --log.progress none "$@" >>"$site.out" 2>&1 &
    pid=$!
    processes="$processes $pid"
}
site_as() { # site_as SITE VERSION
    as "$2"
    sites_start "$1"
}
setting() { # setting SECTION KEY VALUE: one more line of run.yaml
    sed -i "s/^$1:\$/$1:\\n  $2: $3/" run.yaml
}
fresh() {
    rm -rf a b c aggregator serve.out [abc].out
}
digests() { # of all sites, and of the aggregator
    for s in $(echo "$sites" | tr ',' ' '); do final "$s"; done
    sed -n 's/.*ev=final outer_state=//p' serve.out
}
equal() { # equal WORDS: the digests are those of the old version alone
    digests >found
    [ -s found ] && cmp -s found wanted || fail "$*: $(cat found), the old version alone: $(cat wanted)"
    echo "$*: equal"
}

# ---- every mix of two sites and an aggregator ----
steps=40
configure a,b
old_names
for mix in "old old old" "new old old" "old new old" "old old new" "new new old" "new old new" "old new new" "new new new"; do
    fresh
    set -- $mix
    as "$1"
    serve
    site_as a "$2"
    site_as b "$3"
    sites_end 0 a b
    serve_ends
    [ -e wanted ] || digests >wanted
    equal "aggregator $1, site a $2, site b $3"
done

# ---- one process after the other, in mid-run ----
for order in "a b serve" "serve b a"; do
    fresh
    as old
    serve
    site_as a old
    site_as b old
    rounds_then=1
    for who in $order; do
        until_rounds a $rounds_then
        rounds_then=$((rounds_then + 1))
        case $who in
        serve)
            kill -TERM "$serve_pid"
            ends 75 "$serve_pid" "the old aggregator"
            as new
            serve
            ;;
        *)
            eval "p=\$$who"
            kill -TERM "$p"
            ends 75 "$p" "the old site $who"
            site_as "$who" new
            ;;
        esac
    done
    sites_end 0 a b
    serve_ends
    grep -q "^written by atoll $("$now" --version | sed -n 's/^atoll \([^ ]*\) .*/\1/p')" a/FORMAT || fail "site a is not written by the new version"
    equal "from old to new in the order $order"
done

# ---- back: what the new version wrote, the old one reads ----
fresh
as new
serve
site_as a new
site_as b new
until_rounds b 1
kill -TERM "$b"
ends 75 "$b" "the new site b"
site_as b old
sites_end 0 a b
serve_ends
equal "site b back from new to old"

# ---- amendments, made by either version's operator at either version's aggregator ----
rm -f wanted
"$now" cert issue --role operator --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role operator"
for mix in "old old old old" "new old new new" "old new old new" "new new new old"; do # operator, aggregator, site a, site b
    fresh
    set -- $mix
    as "$2"
    serve
    listening
    as "$1"
    key=outer.sync_every
    [ "$1" = new ] || key=outer.every
    operator set $key 12 --at-round 2 || fail "operator set: $(cat operator.out)"
    site_as a "$3"
    site_as b "$4"
    sites_end 0 a b
    serve_ends
    [ -e wanted ] || digests >wanted
    equal "amended: operator $1, aggregator $2, sites $3 $4"
done

# ---- secure aggregation; a quorum would leave out whom it likes ----
rm -f wanted
steps=24
as new
configure a,b,c
setting outer full_precision fixed
setting outer weights equal
printf 'privacy:\n  secure: sum\n' >>run.yaml
old_names
for mix in "old old old old" "new old new old" "old new old new" "new new new new"; do
    fresh
    set -- $mix
    as "$1"
    serve
    site_as a "$2"
    site_as b "$3"
    site_as c "$4"
    sites_end 0 a b c
    serve_ends
    [ -e wanted ] || digests >wanted
    equal "masked: aggregator $1, sites $2 $3 $4"
done
echo "equal digests in every mix of $("$before" --version | head -n 1) and $("$now" --version | head -n 1)"
