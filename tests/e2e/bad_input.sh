#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Wrong input, each with a sentence that says what, where and what to do, with its exit code, and nothing lost.
. "$(dirname "$0")/lib.sh"
steps=24
configure a,b

cases=0
expect() { # expect CODE "WORDS" COMMAND...: ends with that code and says all these words (separated by |)
    code=$1 words=$2
    shift 2
    status=0
    bounded "$@" >said.out 2>&1 || status=$?
    [ "$status" -eq "$code" ] || fail "wanted exit code $code, got $status from: $*"
    says "$words" said.out
    cases=$((cases + 1))
}
says() { # says "WORDS|WORDS" FILE
    rest=$1
    while [ -n "$rest" ]; do
        word=${rest%%|*}
        case $rest in *"|"*) rest=${rest#*|} ;; *) rest="" ;; esac
        grep -qF -- "$word" "$2" || fail "\"$word\" is not in $2"
    done
}
alone() { # the command line of a site alone; more arguments follow
    echo "$atoll train --config run.yaml --site.aggregator= --site.name a --run.dir alone --log.progress none"
}
data="--data.train data/train-0-*.bin"
set -f # patterns are the program's to expand

# --- keys and values -------------------------------------------------------------------------------------
sed 's/^  seed: 7/  sede: 7/' run.yaml >typo.yaml
expect 4 "typo.yaml:|run.sede|run.seed" "$atoll" train --config typo.yaml
expect 4 "model.widht|model.d_model" $(alone) $data --model.widht 64
expect 4 "train.lr|-1" $(alone) $data --train.lr -1
expect 4 "train.steps|many" $(alone) $data --train.steps many
expect 4 "model.heads|model.d_model" $(alone) $data --model.heads 3
expect 4 "outer.sync_every|outer.fragments" $(alone) $data --outer.sync_every 10 --outer.fragments 4
expect 4 "model.heads|outer.sync_every" $(alone) $data --model.heads 3 --outer.sync_every 10 --outer.fragments 4
mkdir -p outer-state/frag
: >empty.file
expect 4 "outer.slices has 0 entries" "$atoll" eval --from outer-state --outer.partition slices
expect 4 "outer.sync_every|outer.fragments" "$atoll" eval --from outer-state --outer.fragments 9
expect 4 "model.heads|outer.sync_every" "$atoll" export --out x --model.heads 3 --outer.sync_every 10 --outer.fragments 4
expect 4 "outer.slices" "$atoll" import --model x --outer.partition slices
expect 4 "model.heads|outer.sync_every|outer.sites is empty" "$atoll" serve --model.heads 3 --outer.sync_every 10 --outer.fragments 4
expect 4 "model.heads|outer.sync_every|outer.sites is empty" "$atoll" plan --model.heads 3 --outer.sync_every 10 --outer.fragments 4
expect 4 "eval.prompts holds a line break, another control character or a byte that is no UTF-8" $(alone) --eval.prompts "$(printf 'a\377b')"
expect 4 "data.fetch holds|no UTF-8" $(alone) $data --data.fetch "$(printf 'get \342\202')"
expect 4 "train.seq_len|model.max_seq_len" $(alone) $data --train.seq_len 64 --model.max_seq_len 32
expect 4 "empty.file|exists and is not a directory" $(alone) $data --run.dir empty.file
expect 4 "site.name|nobody" "$atoll" train --config run.yaml --site.name nobody
expect 4 "none.yaml" "$atoll" train --config none.yaml
expect 4 "--confg|--config" "$atoll" train --confg run.yaml
expect 4 "unknown option --stpes; the nearest is --train.steps" $(alone) $data --stpes 3
expect 4 "unexpected argument|'data/train-0-*.bin'" $(alone) --data.train data/train-0-0000.bin data/train-0-1001.bin
expect 4 "no command \"tarin\"; the nearest is \`atoll train\`" "$atoll" tarin
expect 4 "no command \"tarin\"; the nearest is \`atoll train\`" "$atoll" help tarin
expect 4 "no command \"something\"; \`atoll --help\` lists them" "$atoll" something
expect 0 "outer.lr|allowed: 0 to 10" "$atoll" help outer.lr
expect 0 "outer.codec|default: int8" "$atoll" train --help-keys outer.codec
expect 4 "there is no key outer.fragmens; the nearest is outer.fragments" "$atoll" help outer.fragmens
# A copy of the program, since one next to a demo's prepared text would find that text and run.
mkdir bare && cp "$atoll" bare/atoll
expect 4 "--text FILE is missing|demo --text text.txt" bare/atoll demo --dir demo
expect 0 "Usage: atoll train|--dry-run" "$atoll" help train
expect 0 "Usage: atoll cert issue" "$atoll" help cert issue
for command in train serve eval sample export import plan probe sim ledger report data doctor wan demo; do
    expect 0 "Usage: atoll $command" "$atoll" $command --help
    awk 'length > 100 && !/^  atoll/ { exit 1 }' said.out || fail "atoll $command --help has lines of more than 100 columns"
    # The sentence that says what it does is one paragraph: a line ends where the next word does not fit.
    awk 'NR > 1 && /^$/ { part++; next } part == 1 { if (last != "" && length(last) + length($1) < 90) exit 1; last = $0 }' said.out ||
        fail "atoll $command --help breaks a line in the middle of its summary"
done

# --- text and shards -------------------------------------------------------------------------------------
expect 4 "data.train" $(alone)
expect 4 "none-*.bin" $(alone) --data.train none-*.bin
: >empty.txt
expect 4 "empty.txt" "$atoll" data --out x empty.txt
echo "too short" >short.txt
expect 4 "short" "$atoll" data --out x --seq-len 32 short.txt
shard=data/train-0-0000.bin
head -c 2000 $shard >cut.bin
expect 4 "cut.bin" $(alone) --data.train cut.bin
{ printf '\001\002\003\004' && tail -c +5 $shard; } >magic.bin
expect 4 "magic.bin" $(alone) --data.train magic.bin
{ head -c 4 $shard && printf '\011' && tail -c +6 $shard; } >version.bin
expect 4 "version.bin" $(alone) --data.train version.bin
expect 4 "model.vocab_size|100" $(alone) $data --model.vocab_size 100 --data.tokenizer external

# --- a pipe without a writer, where a file is expected: no command waits for it; a folder without what it should hold --
mkdir -p pipes/model pipes/config pipes/empty pipes/run pipes/archive
for name in pipe model/model.safetensors config/config.json config/model.safetensors run/metrics.jsonl run/ledger.jsonl archive/HEAD; do
    mkfifo "pipes/$name"
done
not="not a regular file"
expect 4 "pipes/pipe: $not" "$atoll" train --config pipes/pipe
expect 4 "pipes/pipe: $not" "$atoll" serve --config pipes/pipe
expect 4 "pipes/pipe: $not" $(alone) --data.train pipes/pi*
expect 4 "pipes/pipe: $not" "$atoll" data --out x pipes/pipe
expect 4 "pipes/pipe: $not" "$atoll" data --out x --tokenizer pipes/pipe text.txt
expect 4 "pipes/model/model.safetensors: $not" "$atoll" import --run.dir pipes/no --model pipes/model
expect 4 "pipes/config/config.json: $not" "$atoll" import --write-config pipes/no.yaml --model pipes/config
expect 4 "pipes/empty/model.safetensors: cannot open: No such file" "$atoll" import --run.dir pipes/no --model pipes/empty
expect 4 "pipes/archive/HEAD: $not" "$atoll" replay pipes/archive
expect 4 "pipes/run/metrics.jsonl" "$atoll" report pipes/run
expect 4 "pipes/run/ledger.jsonl" "$atoll" ledger pipes/run
expect 4 "pipes/pipe: cannot be read (no regular file)" "$atoll" operator status --aggregator localhost:1 --proxy http://localhost:1 \
    --proxy-credentials pipes/pipe

# --- a person's calls: each act has its own options ---------------------------------------------------------
expect 0 "operator set [options] KEY VALUE|--at-round N|--list" "$atoll" operator set --help
! grep -qE -- "--(to|fragment) " said.out || fail "operator set --help lists options of other acts"
expect 0 "--fragment N|--to N" "$atoll" operator rollback --help
! grep -qE -- "--(at-round|list) |Default: -1" said.out || fail "operator rollback --help lists options of other acts"
expect 0 "of a run with several" "$atoll" operator roster add --help
! grep -qE -- "--(at-round|list|to|fragment) " said.out || fail "operator roster add --help lists options of other acts"
expect 4 "unknown option --at-round" "$atoll" operator abort --at-round 3 --aggregator localhost:1

# --- a run that goes wrong -------------------------------------------------------------------------------
expect 1 "not finite|lower the learning rate" $(alone) $data --run.dir nan --train.optimizer adamw --train.lr 100 --train.max_grad_norm 0 \
    --train.warmup_steps 0 --train.steps 400
! grep -q '"kind":"final"' nan/metrics.jsonl || fail "a diverged run has a final word"

# --- checkpoints: another model, other settings, one byte -------------------------------------------------
expect 0 "ev=final" $(alone) $data
expect 4 "checkpoint|model" $(alone) $data --model.d_model 64
expect 4 "train.lr" $(alone) $data --train.lr 0.02
rm -rf hurt && cp -r alone hurt
newest=$(ls hurt/inner | grep '^0' | tail -n 1)
size=$(wc -c <"hurt/inner/$newest/state")
printf 'xyz' | dd of="hurt/inner/$newest/state" bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null
expect 0 "$newest|ev=final" $(alone) $data --run.dir hurt # the one before it serves
for step in $(ls hurt/inner | grep '^0'); do
    printf 'xyz' | dd of="hurt/inner/$step/state" bs=1 seek=$((size / 3)) conv=notrunc 2>/dev/null
done
expect 1 "hurt/inner|runbook" $(alone) $data --run.dir hurt

# --- the same directory twice ------------------------------------------------------------------------------
$(alone) $data --run.dir twice --train.steps 100000 >first.out 2>&1 &
first=$!
processes="$processes $first"
until_lines 1 "ev=start" first.out
expect 4 "twice|another process" $(alone) $data --run.dir twice
kill -INT $first
ends 75 $first "the first process"

# --- ledgers -----------------------------------------------------------------------------------------------
expect 4 "alone/ledger.jsonl|run.dir" "$atoll" ledger alone
expect 4 "--by|fragment" "$atoll" ledger --by colour alone
expect 4 "directories" "$atoll" ledger
mkdir -p foreign-ledger && cp alone/metrics.jsonl foreign-ledger/ledger.jsonl
expect 4 "foreign-ledger/ledger.jsonl|no ledger" "$atoll" ledger foreign-ledger

# --- no reader, nowhere to write --------------------------------------------------------------------------
{ status=0; $(alone) $data --run.dir unread 2>&1 || status=$?; echo "$status" >unread.status; } | head -n 1 >/dev/null
[ "$(cat unread.status)" -eq 0 ] || fail "training ended with $(cat unread.status) when its reader left"
grep -q '"kind":"final"' unread/metrics.jsonl || fail "training did not finish when its reader left"
cases=$((cases + 1))
expect 1 "standard output|full" sh -c '"$0" train --help-keys >/dev/full' "$atoll"

# --- a full disk -------------------------------------------------------------------------------------------
mkdir -p small
if mount -t tmpfs -o size=400k tmpfs small 2>/dev/null; then
    status=0
    $(alone) $data --run.dir small/run >full.out 2>&1 || status=$?
    umount small
    [ "$status" -eq 1 ] || fail "a full disk ended with $status"
    says "full" full.out
    cases=$((cases + 1))
else
    echo "skipped here: a full disk (mounting a small one is not permitted)"
fi

# --- the link ----------------------------------------------------------------------------------------------
train a # no process listens yet
a=$pid
until_lines 1 "unreachable" a.out
kill -INT "$a"
ends 75 "$a" "a site without an aggregator"
cases=$((cases + 1))

serve
listening
expect 4 "127.0.0.1:$port|in use" "$atoll" serve --config run.yaml --serve.dir other
expect 4 "aggregator|another process" "$atoll" serve --config run.yaml --serve.listen 127.0.0.1:0
site_b="$atoll train --config run.yaml --site.name b --run.dir b $data --log.progress none"
expect 4 "outer.sync_every: 4 here, 8 there" $site_b --outer.sync_every 4
expect 4 "train.lr" $site_b --train.lr 0.5
expect 4 "tls2" $site_b --tls.dir tls2
"$atoll" cert authority --run e2e --dir foreign >foreign.out 2>&1
"$atoll" cert issue --role site --name b --dir foreign >>foreign.out 2>&1
expect 2 "certificate" $site_b --tls.dir foreign
"$atoll" cert authority --run other --dir otherrun >foreign.out 2>&1
mkdir mixed && cp tls/ca.pem mixed/ca.pem && cp tls/a.pem mixed/b.pem && cp tls/a.key mixed/b.key
expect 2 "certificate" $site_b --tls.dir mixed # a's certificate under b's name
"$atoll" cert issue --role site --name c --dir tls >>foreign.out 2>&1
expect 2 "outer.sites|operator roster add c" "$atoll" train --config run.yaml --site.name c --run.dir c $data
train a # waits for b; the same name again, from another directory
until_lines 1 "ev=bound" a.out
expect 4 "superseded|a newer process of this site" $atoll train --config run.yaml --site.name a --run.dir a2 $data --log.progress none
kill -INT "$pid"
ends 75 "$pid" "the first process of site a"
expect 4 "run.dir|of site a|site b" "$atoll" train --config run.yaml --site.name b --run.dir a $data --log.progress none
"$atoll" cert revoke atoll://e2e/site/b --dir tls >>foreign.out 2>&1
expect 2 "certificate" $site_b
rm -f tls/revoked.txt
mkdir unsaid
"$atoll" cert revoke atoll://e2e/site/bb --dir tls >unsaid/revoke.out 2>&1 # no such name: said, and done
grep -q "no certificate in tls has this identity" unsaid/revoke.out || fail "revoking an unknown name is not warned of"
rm -f tls/revoked.txt
expect 4 "atoll cert authority makes it" "$atoll" cert issue --role site --name a --dir unsaid
kill "$serve_pid"
wait "$serve_pid" || :
echo "$cases cases"
