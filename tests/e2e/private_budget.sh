#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: a site claims an epsilon that its noise does not keep, trains beyond its cap, or forgets what it has spent
# when an older copy of its directory comes back.
. "$(dirname "$0")/lib.sh"

said() { # said WORDS FILE
    grep -qF -- "$1" "$2" || fail "\"$1\" is not in $2"
}
charged() { # steps on a site's list, those that are counted in one line included
    awk '{ n = 1; for (i = 1; i <= NF; i++) if (sub(/^counted=/, "", $i)) n = $i; all += n } END { print all + 0 }' "$1/inner/privacy.charges"
}
alone() { # alone CODE ARGUMENTS...
    wanted=$1 code=0
    shift
    "$atoll" train --config run.yaml --site.aggregator "" --run.dir alone --data.train "data/train-0-*.bin" --log.progress none \
        --privacy.unit sequence "$@" >alone.out 2>&1 || code=$?
    [ "$code" -eq "$wanted" ] || fail "wanted exit code $wanted, got $code from: $*"
}

steps=24 every=4 checkpoint_every=4
small() { # small SITES: fewer records, so that a step costs more
    head -c 60000 text.txt >small.txt
    configure "$1"
    "$atoll" data --out data --sites 3 --seq-len 32 --force small.txt >data.out 2>&1 || fail "atoll data"
}
small a,b
# The noise for a claim, the same sentence in the log and on record, and once more after a restart.
alone 0 --privacy.epsilon 2 --train.steps 12
said "(epsilon, delta) = (1.99" alone.out
said "after 12 steps, unit = sequence, accountant = PLD, sampling = Poisson with q = " alone.out
said "(implemented, not assumed)" alone.out
[ "$(sed -n 2p alone/metrics.jsonl | grep -c '"kind":"privacy".*"text":"(epsilon, delta) = (1.99')" = 1 ] || fail "no claim in the second line of the record"
cp alone.out first.out
noise=$(sed -n 's/.*ev=privacy noise=\([0-9.]*\) .*/\1/p' alone.out)
grep -q " noise=$noise" alone/inner/privacy.charges || fail "noise $noise is not charged"
alone 0 --privacy.epsilon 2 --train.steps 12
said "ev=privacy noise=$noise" alone.out
alone 4 --privacy.epsilon 1 --train.steps 12
said "is not kept: 12 charged steps and 0 further ones" alone.out
alone 4 --privacy.epsilon 2 --privacy.noise_multiplier 0.1 --train.steps 20
said "possible: privacy.noise_multiplier = " alone.out
alone 4 --privacy.epsilon 2 --privacy.sampling fixed
said "no epsilon can be claimed" alone.out
alone 4 --privacy.noise_multiplier 1 --privacy.delta 0.01
said "the number of records" alone.out
# The plan says the same before the run, and refuses what a claim cannot be.
planned() { # planned CODE ARGUMENTS...
    wanted=$1 code=0
    shift
    "$atoll" plan --private --config run.yaml --data.train "data/train-0-*.bin" --train.steps 12 --privacy.unit sequence "$@" \
        >plan.out 2>&1 || code=$?
    [ "$code" -eq "$wanted" ] || fail "wanted exit code $wanted, got $code from: plan --private $*"
}
planned 0 --privacy.epsilon 2
said "noise          $noise, computed for privacy.epsilon" plan.out
said "$(sed -n 's/.*ev=privacy .*text="\(.*\)"$/\1/p' first.out | head -n 1)" plan.out
records=$(sed -n 's/^.* \(records=[0-9]*\) .*/\1/p' alone/inner/privacy.charges | head -n 1)
said "sequence: ${records#records=} records, 4 in a step on average" plan.out
planned 0 --privacy.epsilon 2 --records 400
said "q = 0.01;" plan.out
said "verdict        signal over noise of all 12 steps is" plan.out
said "leaving        every round waits for all" plan.out
planned 4 --privacy.epsilon 2 --privacy.noise_multiplier 0.1
said "possible: privacy.noise_multiplier = $noise" plan.out
planned 4 --privacy.epsilon 2 --privacy.unit none
said "nothing is hidden" plan.out
planned 4 --privacy.epsilon 2 --privacy.delta 0.01
said "the number of records" plan.out
planned 4 --privacy.epsilon 8 --site-level
said "times the largest possible signal: nothing would be learned" plan.out
planned 0 --privacy.epsilon 8 --site-level --force
said "Noise norm is " plan.out
# A cap: the steps before are stored, and a higher cap continues from there.
rm -r alone
alone 7 --privacy.noise_multiplier 0.6 --privacy.epsilon_max 2
said "one more would make it" alone.out
done=$(charged alone)
[ "$done" -gt 0 ] && [ "$done" -lt $steps ] || fail "the cap allowed $done of $steps steps"
alone 7 --privacy.noise_multiplier 0.6 --privacy.epsilon_max 2
[ "$(charged alone)" = "$done" ] || fail "a step beyond the cap was charged"
alone 0 --privacy.noise_multiplier 0.6 --privacy.epsilon_max 9
[ "$(charged alone)" = $steps ] || fail "the run with a higher cap did not end"

# What the list of charges says, and which line is damaged.
ledger() { # ledger CODE ARGUMENTS...
    wanted=$1 code=0
    shift
    "$atoll" privacy ledger "$@" >ledger.out 2>&1 || code=$?
    [ "$code" -eq "$wanted" ] || fail "wanted exit code $wanted, got $code from: privacy ledger $*"
}
claim=$(sed -n 's/.*"kind":"privacy".*"epsilon":\([0-9.]*\),.*/\1/p' alone/metrics.jsonl | tail -n 1)
ledger 0 alone
said "charges        alone/inner/privacy.charges: $steps steps" ledger.out
said "PLD            epsilon $claim  <- holds" ledger.out
said "cap            9; left: epsilon " ledger.out
ledger 0 alone --epsilon-max "$claim"
said ", 0 further steps of the newest setting" ledger.out # what is left of epsilon is the rounding of the claim
ledger 0 alone --format json
python3 - ledger.out "$claim" $steps <<'END' || fail "the JSON of privacy ledger"
import json, sys
said = json.load(open(sys.argv[1]))
assert said["epsilon"] == float(sys.argv[2]) and said["steps"] == int(sys.argv[3]) and said["site"] == ""
assert said["settings"][0]["noise"] == 0.6 and said["settings"][0]["unit"] == "sequence" and said["cap"] == 9
END
ledger 4 data
said "data/inner/privacy.charges is not there" ledger.out
# A second run over the same people: with a ledger it counts, and both figures are said.
ledger 0 alone alone
said "together                 (epsilon, delta) = (" ledger.out
alone 0 --privacy.noise_multiplier 0.6 --run.dir people-1 --privacy.ledger people
grep -q "privacy_ledger" alone.out && fail "the first run of a ledger has none before it"
alone 0 --privacy.noise_multiplier 0.6 --run.dir people-2 --privacy.ledger people
said "The ledger has 1 other runs over these people (e2e of site alone): with all its steps this run alone costs" alone.out
ledger 0 people-1 people-2
both=$(sed -n 's/^together .* = (\([0-9.]*\), .*/\1/p' ledger.out)
said "together they cost $both at delta" alone.out
alone 4 --privacy.epsilon "$(awk "BEGIN { print $both * 0.99 }")" --privacy.noise_multiplier 0.6 --run.dir people-2 --privacy.ledger people
said "is not kept" alone.out
"$atoll" report --privacy people-2 --format text >officer.out 2>&1 || fail "report --privacy people-2"
tr -s ' \n' ' ' <officer.out | grep -qF "together they cost $both" || fail "the page hides the other run"
[ "$(stat -c %a people/list)$(stat -c %a people/key)" = 600600 ] || fail "others can read the ledger"
sed -i '$d' people/list
alone 1 --privacy.noise_multiplier 0.6 --run.dir people-2 --privacy.ledger people
said "what earlier runs have charged to the same people is not known" alone.out
# Lines that are missing: each reader says so, and the site stops.
cp alone/inner/privacy.charges whole
for lost in '' '$d' '5d' '1d'; do
    sed "${lost:-d}" whole >alone/inner/privacy.charges
    ledger 1 alone
    said "the budget that was spent is not known" ledger.out
    alone 1 --privacy.noise_multiplier 0.6 --train.steps $((steps + 1))
    said "the budget that was spent is not known" alone.out
done
cp whole alone/inner/privacy.charges
sed -i '7s/step/stap/' alone/inner/privacy.charges
ledger 1 alone
said "alone/inner/privacy.charges, line 7, is no charge" ledger.out

# Strict mode: the site halts, and with a higher cap the run ends as any other.
private="--privacy.unit sequence --privacy.noise_multiplier 0.6"
serve
train a $private
a=$pid
train b $private --privacy.epsilon_max 2
b=$pid
ends 7 "$b" "site b, strict"
said "this site ends its part of the run" b.out
[ "$(charged b)" -gt 0 ] && [ "$(charged b)" -lt $steps ] || fail "in a run the cap allowed $(charged b) steps"
kill -0 "$a" || fail "site a did not wait"
train b $private --privacy.epsilon_max 9
b=$pid
# A copy of b's directory comes back: what the manifests name is charged, beyond what the copy lists.
until_rounds b 3
kill -INT "$b"
ends 75 "$b" "site b"
cp -a b copy
train b $private --privacy.epsilon_max 9
b=$pid
until_rounds b 5
kill -INT "$b"
ends 75 "$b" "site b"
rounds_before=$(rounds b)
spent=$(charged b)
rm -r b
mv copy b
[ "$(charged b)" -lt "$spent" ] || fail "the copy is not older"
tries=0
while :; do # the aggregator has seen a later start of this site
    train b $private --privacy.epsilon_max 9
    b=$pid
    code=0
    wait "$b" || code=$?
    [ $code -eq 0 ] && break
    tries=$((tries + 1))
    [ $tries -lt 40 ] || fail "the copy was not taken up, exit code $code"
    [ $code -eq 1 ] || [ $code -eq 4 ] || fail "the copy ended with $code"
done
ends 0 "$a" "site a"
serve_ends
same_state a b
said "ev=privacy_counted" b.out
grep -q " counted=" b/inner/privacy.charges || fail "nothing was counted for the copy"
[ "$(charged b)" -ge $steps ] || fail "the copy ended with $(charged b) charged steps; $steps were trained"
[ "$(lines counted= a/inner/privacy.charges)" = 0 ] || fail "a site that lost nothing counted"

# The page for a data-protection officer, of the directory alone.
officer() { # officer CODE DIR ARGUMENTS...
    wanted=$1 dir=$2 code=0
    shift 2
    "$atoll" report --privacy "$dir" "$@" >officer.out 2>&1 || code=$?
    [ "$code" -eq "$wanted" ] || fail "wanted exit code $wanted, got $code from: report --privacy $dir $*"
}
words() { tr -s ' \n' ' ' <officer.out | grep -qF -- "$1" || fail "\"$1\" is not in the page"; }
mv tls away
officer 0 b --format text
mv away tls
words "Privacy of site b in run e2e"
words "to the aggregator at 127.0.0.1:$port"
words "Charged until now: (epsilon, delta) = ("
words "after $(charged b) steps, unit = sequence"
words "Secure aggregation is off"
words "What one record can change is bounded by epsilon ="
words "Nothing is promised for a person as a whole: the unit is one training example"
words "What is promised for one training example"
words "Held-out records (data.eval) are outside of this promise"
words "the training loss: not sent"
words "No audit is on record"
words "contribution change of the model"
if command -v openssl >/dev/null; then
    words "identity certificate, SHA-256 $(openssl x509 -in tls/b.identity.pem -outform der | sha256sum | cut -d ' ' -f 1)"
    words "TLS certificate, SHA-256 $(openssl x509 -in tls/b.pem -outform der | sha256sum | cut -d ' ' -f 1)"
    words "aggregator identity key, Ed25519 $(openssl x509 -in tls/aggregator.identity.pem -noout -pubkey |
        openssl pkey -pubin -outform der | tail -c 32 | od -An -tx1 | tr -d ' \n')"
fi
[ "$(grep -c "UTC .* of 2" officer.out)" = "$(grep '"kind":"round"' b/metrics.jsonl | grep -c '"replayed":0')" ] ||
    fail "the page lists other rounds than the record"
officer 0 b --out page.html
grep -q "<title>Privacy of site b" page.html && grep -q "</body></html>" page.html || fail "the page is not whole"
[ "$(grep -cE "<script|https?://" page.html)" = 0 ] || fail "the page loads something"
officer 1 alone
words "line 7, is no charge"
officer 4 data
officer 4 a b

# Quorum mode: the site leaves, and the others end the run without it.
rm -rf a b c aggregator
mode=quorum
small a,b,c
serve
sites_start a b
train c $private --privacy.epsilon_max 2
c=$pid
ends 7 "$c" "site c, quorum"
for s in a b; do eval "ends_quorum \"\$$s\" 'site $s'"; done
code=0
wait "$serve_pid" || code=$?
[ "$code" -eq 0 ] || [ "$code" -eq 6 ] || fail "the aggregator ended with $code"
said "its privacy budget is spent" serve.out
[ "$(charged c)" -gt 0 ] && [ "$(charged c)" -lt $steps ] || fail "in quorum mode the cap allowed $(charged c) steps"
echo "claims, caps and copies are as stated; the cap allowed $done steps"
