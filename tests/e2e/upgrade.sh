#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# This release reads the directories of the last one: a run that another commit left in tests/golden/runs/FORMAT continues and ends
# with the SHA-256 that was recorded then. A directory of another format is refused by the name of its program, before any
# setting is compared. --make writes the run of the present format again (tests/golden/runs/README.md).
. "$(dirname "$0")/lib.sh"
golden="$repository/tests/golden/runs"
format=2
tiny="--model.layers 1 --model.heads 1 --model.d_model 8 --model.max_seq_len 8 --train.seq_len 8 --train.eval_tokens 256"

# All steps are done and the last contributions are stored, so what is left is the same on every machine: decode, sum, outer step.
make() {
    steps=80 every=40 checkpoint_every=80 history_rounds=1
    settings=$tiny
    head -c 8000 "$repository/LICENSE" >text.txt
    configure a,b
    serve
    sites_start a b
    until_rounds a 1
    until_rounds b 1
    kill -TERM "$serve_pid"
    ends 75 "$serve_pid" "the aggregator"
    for site in a b; do
        until_lines 1 '"step":80,' $site/metrics.jsonl
        until_lines 1 "aggregator unreachable for" $site.out
    done
    kill -TERM "$a" "$b"
    sites_end 75 a b
    [ "$(grep -c ' ev=commit ' serve.out)" -eq 1 ] || fail "the last round was committed already: repeat it"
    rm -rf "$golden/$format"
    mkdir -p "$golden/$format"
    rm -f ./*/log.txt* ./*/LOCK data/train-[ab]*
    cp -r a b aggregator tls data run.yaml "$golden/$format/"
    undisturbed
    same_state a b
    final a >"$golden/$format/final"
    final b >>"$golden/$format/final"
    du -sk "$golden/$format"
}

if [ "${3:-}" = --make ]; then
    make
    exit 0
fi

# refused WORDS COMMAND...: with exit code 4 and these words, and no word of a setting
refused() {
    words=$1 code=0
    shift
    "$atoll" "$@" >refused.out 2>&1 || code=$?
    [ $code = 4 ] && grep -q -- "$words" refused.out || fail "$*: exit code $code, wanted 4 and '$words'"
    ! grep -q 'outer.sync_every' refused.out || fail "$*: it compares settings"
}

# renamed FILE: a configuration with former names is refused with the new ones, and docs/configuration.md says how they come into the file
renamed() {
    code=0
    "$atoll" train --config "$1" --dry-run >renamed.out 2>&1 || code=$?
    [ $code = 4 ] && grep -q "$1:26: outer.every is now named outer.sync_every" renamed.out || fail "former names: exit code $code"
    sed -n 's/.*:\([0-9]*\): [a-z]*\.\([a-z0-9_]*\) is now named [a-z]*\.\([a-z0-9_]*\)$/\1s,\2,\3,/p' renamed.out >names.sed
    sed -i -f names.sed "$1"
}

for made in "$golden"/[0-9]*; do
    rm -rf a b aggregator tls data run.yaml ./*.out
    cp -r "$made"/* .
    chmod -R go= a b aggregator tls # a checkout has modes of its own
    for who in "aggregator --host localhost,127.0.0.1" "site --name a" "site --name b"; do # the former ones have expired
        "$atoll" cert issue --role $who --dir tls >>cert.out 2>&1 || fail "a new certificate"
    done
    [ "${made##*/}" != 2 ] || renamed run.yaml
    free_port
    settings="$tiny --site.aggregator 127.0.0.1:$port --serve.listen 127.0.0.1:$port"
    cp -r aggregator newer
    cp -r a newer-a
    cp -r aggregator unnamed
    undisturbed
    { final a && final b; } >final.out
    cmp -s final.out "$made/final" || fail "the run of $made ends with $(cat final.out), recorded is $(cat "$made/final")"
    grep -q "^written by atoll .*" a/FORMAT && grep -q "^begun by" aggregator/FORMAT || fail "who wrote it"
done

# Another format, newer or older, and another setting as well.
other="$settings --outer.sync_every 100 --run.dir newer-a --serve.dir newer"
for at in newer newer-a data; do
    sed -i 's/, format [0-9]*/, format 99/; s/^written by .*/written by atoll 9.0.0 (0123456)/' $at/FORMAT
done
says='written by atoll 9.0.0 (0123456), format 99; this is atoll'
refused "newer: $says" serve --config run.yaml $other
refused "newer-a: $says" train --config run.yaml $other --site.name a --data.train data/train-0-0000.bin --log.progress none
refused "newer-a: $says" eval --run.dir newer-a
refused "data: $says" train --config run.yaml --site.aggregator= --run.dir alone --data.train data/train-0-0000.bin $tiny
refused "of kind run" serve --config run.yaml $settings --serve.dir a
echo "atoll run" >newer/FORMAT
code=0
"$atoll" serve --config run.yaml $other >damaged.out 2>&1 || code=$?
[ $code = 1 ] && grep -q 'newer/FORMAT: damaged' damaged.out || fail "a damaged FORMAT: exit code $code"
# Before releases named their format, the records did.
rm -f newer/FORMAT
printf 'atollS1 and what follows' >newer/frag/0/CURRENT
refused "newer: written by an atoll that named no format, format 1; this is atoll" serve --config run.yaml $other
# Without FORMAT and of the present format it continues, and says so from then on.
rm -f unnamed/FORMAT
"$atoll" serve --config run.yaml $settings --serve.dir unnamed >unnamed.out 2>&1 &
p=$!
processes="$processes $p"
until_lines 1 "ev=listening" unnamed.out
kill -TERM $p
ends 75 $p "an aggregator without FORMAT"
grep -q "^atoll serve, format $format$" unnamed/FORMAT || fail "FORMAT was not written"
"$atoll" --version | grep -q "run $format, serve $format" || fail "--version does not say the formats"
