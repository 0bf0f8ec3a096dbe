#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs with run.archive, recomputed by atoll replay: the outer state is the run's, byte for byte, from the aggregator's archive or
# from all sites'; one flipped bit in a contribution, a manifest or a state is found and named with round, site and tensor; a lost
# file is named. A second run is in quorum mode, with a late site, an aborted round and a rollback; the aggregator and a site are
# killed while they archive, and the aggregator's identity key is another one twice.
. "$(dirname "$0")/lib.sh"

replay() { # replay CODE ARGUMENTS...: what it says is in replay.out
    wanted_code=$1
    shift
    code=0
    "$atoll" replay "$@" >replay.out 2>replay.err || code=$?
    [ "$code" -eq "$wanted_code" ] || fail "atoll replay $*: exit code $code, wanted $wanted_code: $(cat replay.err)"
}
says() { # says WORDS...
    for words in "$@"; do grep -qE -- "$words" replay.out || fail "atoll replay does not say \"$words\": $(cat replay.out)"; done
}
flip() { # flip FILE BYTE: its lowest bit; negative: from the end
    cp "$1" kept
    python3 -c 'import sys
name, at = sys.argv[1], int(sys.argv[2])
b = bytearray(open(name, "rb").read())
b[at] ^= 1
open(name, "wb").write(b)' "$1" "$2"
}

# ---- strict, two fragments, nothing happens ----
steps=48 every=8 fragments=2
configure a,b,c
settings="--run.archive on --run.archive_states 3"
"$atoll" doctor --config run.yaml --serve $settings >doctor.out 2>&1 || [ $? -eq 8 ] || fail "atoll doctor --config"
grep -qE "^OK +archive +aggregator/archive takes 22[0-9] kB a round and 2.7 MB in the run, of " doctor.out || fail "doctor on the archive"
"$atoll" plan --config run.yaml $settings --plan.step_s 1 --plan.up_mbit 100 --plan.down_mbit 100 --plan.rtt_ms 20 >plan.out 2>&1 ||
    fail "atoll plan"
grep -q "^Archive (run.archive, which is on): at the aggregator [0-9.]* kB a round, " plan.out || fail "plan on the archive"
serve
sites_start a b c
sites_end 0 a b c
serve_ends
wanted=$(sed -n 's/.*ev=final outer_state=//p' serve.out)
[ -n "$wanted" ] || fail "the aggregator has no final state"
predicted=$(sed -n 's/.* ev=archive .*bytes_run=\([0-9]*\).*/\1/p' serve.out)
written=$(sed -n 's/.* ev=archive_closed bytes=\([0-9]*\).*/\1/p' serve.out)
[ "$written" -le "$predicted" ] && [ $((written * 100)) -ge $((predicted * 90)) ] ||
    fail "the archive has $written bytes, predicted were $predicted"
for directories in "aggregator" "aggregator/archive" "a b c" "a/archive b/archive c/archive" "aggregator a b c"; do
    replay 0 $directories
    says "^12 rounds: 12 recomputed from the contributions, 0 from" "outer state at the end: $wanted" "^no difference"
    case $directories in
    "a b c" | "aggregator a b c") says "^signatures of the aggregator: 12 manifests checked, by a key that a site has accepted, 0 not checked$" ;;
    *) says "^signatures of the aggregator: 0 manifests checked, .*, 12 not checked [(]keys are in the run directories of sites" ;;
    esac
done
replay 0 aggregator a --ca tls/ca.pem
says "^signatures of the aggregator: 12 manifests checked, by its certificate, 0 not checked"
replay 4 aggregator a --ca nothing.pem
grep -q "nothing.pem" replay.err || fail "a --ca that is not there: $(cat replay.err)"

# Another aggregator's manifests: of a run of the same name, from another authority.
mv tls tls.first && mv a a.first && mv b b.first && mv c c.first && mv aggregator aggregator.first && mv serve.out serve.first
cp run.yaml run.first
steps=8
configure a,b,c
serve
sites_start a b c
sites_end 0 a b c
serve_ends
mkdir forged && cp -r a/id forged/ && cp -r aggregator.first/archive forged/
replay 1 forged
says "^differs: fragment 0 round 0: manifest: not signed with a key that a site has accepted as the aggregator's" "^0 damaged, 12 different, 0 missing" \
    "^12 rounds: 12 recomputed" "^signatures of the aggregator: 0 manifests checked"
replay 0 a.first forged/archive --ca tls/ca.pem # no key by this authority
says "^signatures of the aggregator: 0 manifests checked, by its certificate, 12 not checked"
rm -r a b c aggregator serve.out tls
steps=48
mv run.first run.yaml
mv tls.first tls && mv a.first a && mv b.first b && mv c.first c && mv aggregator.first aggregator && mv serve.first serve.out
replay 0 aggregator --from-round 3 --to-round 4 # state 3 is kept
says "^4 rounds: 4 recomputed"
replay 0 --bisect aggregator a
replay 0 --bisect aggregator

# One bit: the archive alone has the contribution; a site has it, too; nothing names the site but the manifest.
f=aggregator/archive/1/2/b.payload
flip $f 10000
replay 1 aggregator/archive
says "^damaged: fragment 1 round 2: contribution of site b at theta of layers[.][0-9.a-z]*weight, values [0-9]* to [0-9]*: .*$f"
replay 1 aggregator b
says "^damaged: fragment 1 round 2: contribution of site b at theta of layers[.][0-9.a-z]*weight, value [0-9]*: " "outer state at the end: $wanted"
replay 1 aggregator/archive --format json
python3 -c 'import json
r = json.load(open("replay.out"))
f = r["findings"][0]
assert (f["kind"], f["what"], f["fragment"], f["round"], f["site"]) == ("damaged", "contribution", 1, 2, "b"), f
assert f["leaf"]["array"] == "theta" and f["leaf"]["tensor"].startswith("layers."), f
assert r["damaged"] == 1 and r["outer_state"] == "", r' || fail "atoll replay --format json: $(cat replay.out)"
cp kept $f
f=aggregator/archive/0/1/MANIFEST
flip $f -300
replay 1 aggregator/archive
says "^damaged: fragment 0 round 1: manifest: .*$f"
cp kept $f
f=aggregator/archive/0/3/state # 4 bytes a value, after the head
flip $f 30000
replay 1 aggregator
says "^damaged: fragment 0 round 3: state at theta of [a-z0-9.]*, value [0-9]*: 1 value is not what the rounds give .$f" "outer state at the end: $wanted"
replay 1 --bisect aggregator
says "^damaged: fragment 0 round 3: state at theta"
cp kept $f
f=a/frag/0/$(ls a/frag/0 | grep -v CURRENT | sort -n | tail -n 1)/state
flip "$f" 30000
replay 1 aggregator a
says "^damaged: fragment 0 round [0-9]*: state at theta of .*$f"
cp kept "$f"

# Lost: a contribution, which a site's archive has; one site's archive; a round.
mv aggregator/archive/0/4/c.payload lost
replay 9 aggregator/archive
says "^missing: fragment 0 round 4: contribution of site c: in none"
replay 0 aggregator/archive c
mv lost aggregator/archive/0/4/c.payload
replay 9 a/archive c/archive
says "^missing: fragment 0 round 0: contribution of site b: in none" "0 recomputed"
replay 9 a c # their sums are kept for outer.history_rounds
says "^missing: fragment 1 round 5: contribution of site b: .*made from the kept sum" "outer state at the end: $wanted"
mv aggregator/archive/1/1 lost
replay 9 aggregator/archive
says "^missing: fragment 1 round 1: manifest: in none"
mv lost aggregator/archive/1/1
replay 4 data
grep -q "neither an archive" replay.err || fail "no word of what data is"

# Another run, of other text at site b: the first contribution that differs.
mkdir first && mv aggregator a b c first
serve
train a
a=$pid
train b --data.train "data/train-0-*.bin"
b=$pid
train c
c=$pid
sites_end 0 a b c
serve_ends
replay 1 --bisect first/aggregator aggregator
says "^differs: fragment 0 round 0: contribution of site b at theta of [a-z0-9.]*, value [0-9]*: "

# ---- quorum: late, aborted, rolled back, killed ----
rm -rf a b c aggregator first ./*.out
steps=150 every=6 fragments=2 mode=quorum straggler_timeout_s=0.2 codec=topk
configure a,b,c
"$atoll" cert issue --role operator --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role operator"
settings="--run.archive archives --serve.keep_states 9 --outer.downlink_compression_from 3"
serve
listening
sites_start a b c
until_rounds a 6
kill -STOP "$b"
until_lines 3 "without=b" serve.out
for act in abort "rollback --to 2"; do
    # refused while no contribution of the round is there, or the act before closes it
    await "operator $act" 'operator $act || operator $act --fragment 1 ||
        { grep -q "all rounds are committed" serve.out && again "the run was over before operator $act"; }'
done
kill -CONT "$b"
for killed in 1 2 3; do
    until_rounds a $((8 + 7 * killed))
    kill -9 "$serve_pid" && wait "$serve_pid" 2>/dev/null || :
    if [ $killed -lt 3 ]; then
        cp -r a/id "id.$killed"
        "$atoll" cert renew tls/aggregator.pem --dir tls --revoke >>cert.out 2>&1 || fail "atoll cert renew --revoke"
    fi
    serve
    kill -9 "$c" 2>/dev/null && wait "$c" 2>/dev/null || :
    train c
    c=$pid
done
ends_quorum "$a" "site a"
ends_quorum "$b" "site b"
ends_quorum "$c" "site c"
ends_quorum "$serve_pid" "the aggregator"
wanted=$(sed -n 's/.*ev=final outer_state=//p' serve.out)
replay 0 archives/aggregator
says "outer state at the end: $wanted" " 0 not;"
replay 0 archives
says "outer state at the end: $wanted" "^run e2e, archives of .*archives/aggregator"

# Manifests by three keys, of which site a has the announcements; as it had them before each change, some keys are unknown.
all=$(sed -n 's/^\([0-9]*\) rounds: .*/\1/p' replay.out)
replay 0 archives a
says "^signatures of the aggregator: $all manifests checked, by a key that a site has accepted, 0 not checked$" "^no difference"
! grep -q "key unknown" replay.out || fail "a key is unknown: $(cat replay.out)"
for kept in 1 2; do
    mkdir "early.$kept" && mv "id.$kept" "early.$kept/id" && cp -r archives/aggregator "early.$kept/archive"
    replay 0 "early.$kept"
    says "^signature not checked: key unknown: [1-9][0-9]* manifests" "^no difference"
    unknown=$(sed -n 's/^signature not checked: key unknown: \([0-9]*\) .*/\1/p' replay.out)
    says "^signatures of the aggregator: $((all - unknown)) manifests checked, by a key that a site has accepted, $unknown not checked$"
    [ $kept = 1 ] || [ "$unknown" -lt "$before" ] || fail "two of three keys: $unknown manifests unknown, with one key $before"
    before=$unknown
done
[ "$unknown" -lt "$all" ] || fail "no manifest of $all is signed by two of three keys"
for event in "ev=abort" "ev=operator act=rollback" "without=b$"; do
    grep -q "$event" serve.out || fail "no $event in the run"
done
echo "every round recomputed, $wanted"
