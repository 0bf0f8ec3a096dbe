#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Secure aggregation: three sites mask what they send. The run ends with the SHA-256 of the run without masks, undisturbed and
# under kill -9 of each process at any moment; nothing on the aggregator's disk is what one site sent in the clear.
. "$(dirname "$0")/lib.sh"

secure="--privacy.secure sum"

part_of() { # three sites here
    case $1 in a) echo 0 ;; b) echo 1 ;; *) echo 2 ;; esac
}
three() { # three WHO...: three sites from start to end; each of WHO dies once, and comes back
    serve
    sites_start a b c
    n=0
    for who in "$@"; do
        n=$((n + 1))
        until_rounds c $((n * 2))
        sleep "0.0$((n * 37 % 10))$((n * 53 % 10))"
        case $who in
        serve) kill -9 "$serve_pid" 2>/dev/null && wait "$serve_pid" 2>/dev/null || :; serve ;;
        *)
            eval "old=\$$who"
            kill -9 "$old" 2>/dev/null && wait "$old" 2>/dev/null || :
            sites_start "$who"
            ;;
        esac
    done
    sites_end 0 a b c
    serve_ends
    same_state a b c
}
ended() { # ended: "a b c" final digests
    for s in a b c; do final $s; done
}
# seen: how many of site a's values of the round in flight, as they are before masks, lie on the aggregator's disk
seen() {
    python3 - <<'END'
import glob, os
box = max(glob.glob("a/outbox/0/*"), key=lambda p: int(os.path.basename(p)))
data = open(box, "rb").read()[1024:8192] # the payload is the first section
windows = [data[i:i + 40] for i in range(0, len(data) - 40, 256)]
windows = [w for w in windows if len(set(w)) > 12]
assert len(windows) > 8, "the contribution has no values to look for"
files = [open(f, "rb").read() for f in glob.glob("aggregator/**/*", recursive=True) if os.path.isfile(f)]
print(sum(any(w in f for f in files) for w in windows))
END
}
# Site a's part of the newest round is there, and for a while nothing else comes: c may have ended its part of the one before.
at_rest() {
    newest=$(ls a/outbox/0 | sort -n | tail -n 1)
    there=$(ls aggregator/spool/0/* 2>/dev/null)
    if stored "aggregator/spool/0/$newest/a" && [ "$there" = "$there_before" ]; then rested=$((rested + 1)); else rested=0; fi
    there_before=$there
    [ $rested -ge 10 ]
}
# in_flight: site a has contributed to a round that waits for c
in_flight() {
    serve
    sites_start a b c
    until_rounds c 3
    kill -STOP "$c"
    rested=0 there_before=""
    await "site a has contributed to no round that waits" at_rest
    kill -STOP "$a" "$b" "$serve_pid"
}
stop_all() {
    kill -9 "$a" "$b" "$c" "$serve_pid" 2>/dev/null || :
    wait "$a" "$b" "$c" "$serve_pid" 2>/dev/null || :
}
clear_run() {
    mkdir -p "$1"
    mv a b c aggregator ./*.out "$1"/
}

for codec in int4 sign fixed; do
    steps=64 every=4 fragments=2
    configure a,b,c outer
    settings="--outer.weights equal --outer.full_precision fixed"
    three
    wanted=$(ended)
    clear_run "plain-$codec"

    settings="$settings $secure"
    three
    [ "$(ended)" = "$wanted" ] || fail "$codec: masked and plain runs differ: $(ended) / $wanted"
    [ "$(lines "ev=seal " serve.out)" -gt 0 ] || [ "$(lines "ev=seal " aggregator/log.txt)" -gt 0 ] || fail "no round was sealed"
    [ "$(lines "ev=seal_refused" a.out)" -eq 0 ] || fail "a seal was refused in an honest run"
    predicted=$(grep -o '"up_predicted":[0-9]*' a/metrics.jsonl | head -n 1 | cut -d: -f2)
    counted=$("$atoll" ledger a | awk '$1 == "payload" { print $3 }')
    [ "$predicted" = "$counted" ] || fail "$codec: $predicted bytes up predicted, $counted counted"
    grep -q '"kind":"secure".*and no site.s part of them' a/metrics.jsonl || fail "the record does not say what is promised"
    clear_run "masked-$codec"
    settings="--outer.weights equal --outer.full_precision fixed"
done

# Killed at any moment: no mask is used twice, no work is lost.
settings="$settings $secure --run.archive on"
three serve a serve b c serve a
[ "$(ended)" = "$wanted" ] || fail "killed: $(ended) / $wanted"
# The archive has no contribution, the sums alone: the outer steps are recomputed from them.
! ls aggregator/archive/*/*/*.payload >/dev/null 2>&1 || fail "a masked contribution is archived"
"$atoll" replay aggregator/archive >replay.out 2>&1 || fail "atoll replay: $(cat replay.out)"
grep -q "outer state at the end: $(sed -n 's/.*ev=final outer_state=//p' serve.out)" replay.out || fail "replay: $(cat replay.out)"
grep -q "Not checked: that a sum is that of its contributions" replay.out || fail "replay does not say what masks hide: $(cat replay.out)"
clear_run killed

# Each site proves what left it; a record that was altered proves nothing.
"$atoll" privacy verify killed/a killed/b killed/c >verify.out 2>&1 || fail "atoll privacy verify: $(cat verify.out)"
[ "$(grep -c 'left the site  32 masked payloads' verify.out)" -eq 3 ] || fail "not every payload is proved: $(cat verify.out)"
cp -r killed/a altered
printf 'x' | dd of=altered/seals/0/3 bs=1 seek=400 conv=notrunc 2>/dev/null
code=0
"$atoll" privacy verify altered >verify.out 2>&1 || code=$?
[ "$code" -eq 1 ] && grep -q "NOT PROVED     fragment 0 round 3\|NOT PROVED     seals/0/3" verify.out || fail "an altered record: $code $(cat verify.out)"
cp killed/b/seals/0/4 altered/seals/0/3
"$atoll" privacy verify altered >verify.out 2>&1 && fail "another site's record of another round proves something"
# Evidence that is missing: from the middle and from the end, of a whole fragment, of the first round that another site has sealed.
missing() { # missing WORDS SEALS...: of site a, compared with site b
    wanted=$1
    shift
    rm -rf altered
    cp -r killed/a altered
    (cd altered/seals && rm -r "$@")
    code=0
    "$atoll" privacy verify altered killed/b >verify.out 2>&1 || code=$?
    [ "$code" -eq 1 ] && grep -q "NOT PROVED     $wanted" verify.out || fail "missing $*: $code $(cat verify.out)"
}
missing "fragment 0 round 3: the seal that site b has answered for has this site" 0/3
missing "fragment 0 round 0: the seal that site b" 0/0
last=$(ls killed/a/seals/1 | sort -n | tail -n 1)
missing "fragment 1 round $last: the \(manifest\|seal that site b\)" "1/$last"
missing "fragment 1 round $last: the \(manifest\|seal that site b\)" 1
rm -r altered
cp -r killed/a altered
rm "altered/seals/1/$last" altered/seals/0/3
code=0
"$atoll" privacy verify altered >verify.out 2>&1 || code=$?
[ "$code" -eq 1 ] && grep -q "NOT PROVED     fragment 1 round $last: the manifest has this site" verify.out ||
    fail "the last seal is missing, alone: $code $(cat verify.out)"
grep -q "NOT PROVED     fragment 0 round 3" verify.out || fail "a seal from the middle is missing, alone: $(cat verify.out)"
rm -r altered
cp -r killed/b altered # b: what is not known of a site without records must not be taken for the first site
rm -r altered/seals/*
code=0
"$atoll" privacy verify altered >verify.out 2>&1 || code=$?
[ "$code" -eq 1 ] && grep -q "NOT PROVED     no record at all" verify.out || fail "all seals are missing: $code $(cat verify.out)"

# What lies on the aggregator's disk: without masks the values of a site, with masks none of them.
masked="$settings --outer.fragments 1"
settings="--outer.weights equal --outer.full_precision fixed --outer.fragments 1"
in_flight
[ "$(seen)" -gt 4 ] || fail "the search does not find what is there: $(seen)"
stop_all
clear_run search-plain
settings=$masked
in_flight
[ "$(seen)" -eq 0 ] || fail "the aggregator's disk holds values of site a: $(seen)"
stop_all
clear_run search-masked

# Two sites: nothing would be hidden.
code=0
"$atoll" serve --config run.yaml $settings --outer.sites a,b >two.out 2>&1 || code=$?
[ "$code" -ne 0 ] && grep -q "hides nothing" two.out || fail "two sites are not refused: $code"
# What cannot be added is refused by name.
for refused in "--outer.codec topk" "--outer.merge radial" "--outer.weights tokens" "--outer.clip 2"; do
    code=0
    "$atoll" serve --config run.yaml $settings $refused >refused.out 2>&1 || code=$?
    [ "$code" -ne 0 ] && grep -q "privacy.secure = sum needs" refused.out || fail "$refused is not refused: $code"
done
echo "masked runs end as plain ones: $(echo "$wanted" | head -n 1)"
