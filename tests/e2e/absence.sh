#!/usr/bin/env bash
# What breaks if this fails: a list that stands for a promise lost lines, and nobody misses them. One table over every durable chain
# and numbered sequence (seals, archive, manifests, charges, the ledger of a site's people, journal with an operator's acts, epochs):
# of each the first, a middle, the last and all elements are removed, and an older copy is put in its place. The program that reads
# it says what is missing, and does not end with 0.
. "$(dirname "$0")/lib.sh"

part_of() { echo "$1" | tr a-c 0-2; }
steps=60 every=4 checkpoint_every=8 history_rounds=4 fragments=1
configure a,b,c
"$atoll" cert issue --role operator --dir tls >>cert.out 2>&1 || fail "atoll cert issue --role operator"
settings="--privacy.secure sum --outer.weights equal --outer.full_precision fixed --run.archive on --privacy.unit sequence --privacy.noise 1"
people() { echo "--privacy.ledger $PWD/people-$1"; }
sites_go() { # each with the ledger of its people
    for s in a b c; do
        train $s $(people $s)
        eval "$s=\$pid"
    done
}

# A run of fifteen rounds, with an operator's act in each half; between them all is killed and copied.
serve
sites_go
until_rounds c 6
operator set outer.lr 0.6 || fail "operator set"
until_rounds a 7
kill -9 "$a" "$b" "$c" "$serve_pid" 2>/dev/null || :
wait "$a" "$b" "$c" "$serve_pid" 2>/dev/null || :
mkdir older
cp -r a b c aggregator people-a older/
rm c/seals/0/2 # of c, and its next start misses it
serve
sites_go
sites_end 0 a b c

serve_ends
until_lines 1 "/c/seals/0 here=" c.out
[ "$(lines "ev=seals_missing" a.out)" -eq 0 ] || fail "site a misses seals that are there"

# fresh OF: x is a fresh copy of directory OF, of which something is then removed. says WORDS COMMAND...: it must not end with 0.
fresh() { rm -rf x && cp -r "$1" x; }
says() {
    words=$1 code=0
    shift
    bounded "$atoll" "$@" >said.out 2>&1 || code=$?
    [ "$code" -ne 0 ] || fail "nobody misses it: $what; atoll $*"
    grep -qE -- "$words" said.out || fail "$what: \"$words\" is not said by atoll $*"
    cases=$((cases + 1))
}
cases=0

# ---- seals of a site: numbered, chained, counted in id/maskseals; the manifests of rounds 0 to 10 are gone ----
"$atoll" privacy verify a >said.out 2>&1 || fail "privacy verify of what is whole: $(cat said.out)"
[ ! -e a/frag/0/9/MANIFEST ] || fail "the manifests of the first rounds are still there"
while IFS='|' read -r what remove words; do
    fresh a
    (cd x && eval "$remove") || fail "$what: $remove"
    says "NOT PROVED +$words" privacy verify x
done <<'END'
first seal|rm seals/0/0|fragment 0: 1 record is missing before round 1:
first seals|rm seals/0/[0-2]|fragment 0: 3 records are missing before round 3:
middle seal|rm seals/0/7|fragment 0: 1 record is missing between round 6 and round 8:
last seal|rm seals/0/14|fragment 0: 1 record is missing after round 13:
all seals|rm seals/0/*|fragment 0: 15 records are missing from first to last:
the folder of seals|rm -r seals|fragment 0: 15 records are missing from first to last:
older seals|rm -r seals; cp -r ../older/a/seals .|fragment 0: [0-9]+ records are missing after round
an older count|cp ../older/a/id/maskseals id|fragment 0: id/maskseals counts [0-9]+ records, and seals/0 has 15
no count|rm id/maskseals|id/maskseals: missing: how many records this site has made is not known
another seal in its place|cp seals/0/3 seals/0/4|seals/0/4: the record of another round
END
echo "absence: $cases cases"
