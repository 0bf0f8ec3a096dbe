#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A file of secure aggregation that is lost or damaged. What breaks if this fails: the aggregator without its file `setup` stops, or
# the sums differ; a site without its pair keys, or without the list of what it has signed, takes its directory for a new one.
. "$(dirname "$0")/lib.sh"

steps=480 every=8 fragments=2 codec=int4 # 120 rounds, of which a busy machine may miss some before it looks
configure a,b,c
settings="--outer.weights equal --outer.full_precision fixed --privacy.secure sum"
finals() { echo "$(final a) $(final b) $(final c)"; }
run_start() {
    serve
    sites_start a b c
}

run_start
sites_end 0 a b c
serve_ends
wanted=$(finals)
rm -rf a b c aggregator ./*.out

# The aggregator asks the sites again for what the file had.
run_start
lost=0
for how in removed damaged empty cut; do
    until_rounds c $((lost * 15 + 5))
    killed "$serve_pid"
    case $how in
    removed) rm aggregator/setup ;;
    damaged) printf 'x' | dd of=aggregator/setup bs=1 seek=60 conv=notrunc 2>/dev/null ;;
    empty) : >aggregator/setup ;;
    cut) truncate -s 100 aggregator/setup ;;
    esac
    lost=$((lost + 1))
    serve
    until_lines $lost "ev=setup_lost file=setup" serve.out
done
sites_end 0 a b c
serve_ends
[ "$(finals)" = "$wanted" ] || fail "without setup: $(finals) / $wanted"
! grep -hE "ev=(seal|key)_refused" ./*.out || fail "a refusal in an honest run"
[ "$(lines "ev=abort " serve.out)" -eq 0 ] || fail "a round was aborted"
"$atoll" privacy verify a b c >verify.out 2>&1 || fail "atoll privacy verify: $(cat verify.out)"
rm -rf a b c aggregator ./*.out

# A site names the file, ends with exit code 1, and changes nothing: with the file again it continues.
run_start
for names in maskkeys maskseals "maskkeys maskseals" "damaged maskkeys" "damaged maskseals"; do
    until_rounds c $(($(rounds c) + 2))
    killed "$b"
    rm -rf kept
    cp -r b/id kept
    said="missing, and this directory has begun"
    for name in $names; do
        case $names:$name in
        *:damaged) said=damaged ;;
        damaged*) printf 'x' | dd of="b/id/$name" bs=1 seek=90 conv=notrunc 2>/dev/null ;;
        *) rm "b/id/$name" ;;
        esac
    done
    : >b.out
    sites_start b
    ends 1 "$b" "site b, $names"
    grep -q "b/id/${names##* }: $said: .*remove and add it (atoll operator roster)" b.out ||
        fail "site b does not name $names, or does not say what to do"
    for name in $names; do
        [ $name = damaged ] || cp "kept/$name" "b/id/$name"
    done
    sites_start b
done
sites_end 0 a b c
serve_ends
[ "$(finals)" = "$wanted" ] || fail "after site b was refused: $(finals) / $wanted"
echo "lost and damaged files of masked rounds: $(echo "$wanted" | cut -c 1-16)"
