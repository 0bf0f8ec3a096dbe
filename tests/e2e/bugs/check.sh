#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The cases of this folder, which public bug reports suggested: `holds` or `FAILS` for each, and what was said.
# $1: the program, $2: a scratch directory
here=$(cd "$(dirname "$0")" && pwd)
A=$(readlink -f "$1")
rm -rf "$2" && mkdir -p "$2" && cd "$2" || exit 1
export OMP_NUM_THREADS=2 NO_COLOR=1

# Cases that do not hold yet. The list may only shrink: a case of it that holds is an error here, so that it is taken off.
known=" "
wrong=0
say() { # CASE holds|FAILS|skipped WORDS
    printf '%-20s %-7s %s\n' "$1" "$2" "$3"
    case "$2$known" in
    FAILS*" $1 "*) printf '%-20s %s\n' "" "(known)" ;;
    FAILS*) wrong=1 ;;
    holds*" $1 "*) printf '%-20s %s\n' "" "holds: take it off the list of known cases" && wrong=1 ;;
    esac
}
first() { grep -v '^ts=' "$1" | head -1 | cut -c1-150; }
judge() { [ "$2" -eq 0 ] && say "$1" holds "$(first out)" || say "$1" FAILS "$(first out)"; } # CASE STATUS
until_true() { # COMMAND...: waits for it, a minute at most
    for _ in $(seq 600); do "$@" && return 0; sleep 0.1; done
    return 1
}

for i in $(seq 60); do for k in $(seq 40); do printf 'river stone %d meadow %d ' "$i" $((k * i)); done; printf '\n\n'; done >text.txt
"$A" data --out data --sites 2 text.txt >/dev/null || exit 1
cat >run.yaml <<'Y'
run: {name: alone, seed: 1}
model: {vocab_size: 256, layers: 2, heads: 2, d_model: 32, max_seq_len: 64}
train: {steps: 40, batch_tokens: 512, seq_len: 64, lr: 0.01, warmup_steps: 5, checkpoint_every: 10, eval_tokens: 1024}
data: {tokenizer: bytes, train: ["data/train-0-*.bin"], eval: ["data/eval-*.bin"]}
device: {kind: cpu, dtype: f32, threads: 1}
Y
train() { "$A" train --config run.yaml --log.progress none "$@" >out 2>&1; }
parameters() { grep -o 'ev=final.*' out | grep -o 'parameters=[0-9a-f]*'; }
ids() { rm -rf o; "$A" data --out o --tokenizer "$1" text.txt >out 2>&1 && cat o/*.bin | sha256sum; }

# ---- tokenizers and models ----
ids "$here/untyped_bpe/typed/tokenizer.json" >typed; ids "$here/untyped_bpe/tokenizer.json" >untyped
cmp -s typed untyped; judge untyped_bpe $?
ids "$here/untyped_wordpiece/tokenizer.json" >/dev/null; judge untyped_wordpiece $?
ids "$here/added_token_clash/tokenizer.json" >/dev/null && say added_token_clash FAILS "accepted" || say added_token_clash holds "$(first out)"
for f in family_flag fine_tuner; do
    rm -f c.yaml
    "$A" import --model "$here/config_fields/$f" --write-config c.yaml >out 2>&1; judge "config_$f" $?
done

# ---- texts and token ids ----
sed 's/"model":{/"model":{"type":"WordPiece",/; s/"model": {/"model": {"type": "WordPiece",/' "$here/untyped_wordpiece/tokenizer.json" >wp.json
"$A" data --out ll --seq-len 8 --tokenizer wp.json "$here/long_lines/french.txt" >out 2>&1; judge long_lines $?
"$A" data --labels --tokenizer wp.json --out l --seq-len 8 "$here/bom/labels.tsv" >out 2>&1
grep -q ' 2 classes' out; judge bom_labels $?
"$A" train --config "$here/bom/run.yaml" --run.dir b1 --log.progress none >out 2>&1; judge bom_yaml $?
"$A" data --out b2 --field text "$here/bom/text.jsonl" >out 2>&1; judge bom_jsonl $?
"$A" data --out n --tokens npy "$here/npy_cut/ids.npy" >out 2>&1 && say npy_cut FAILS "$(first out)" || say npy_cut holds "$(first out)"

mkdir -p year=2020 && cp data/train-0-0000.bin data/eval-0000.bin data/data.json year=2020
train --run.dir h --data.train 'year=2020/train-0-0000.bin'; judge hive_train $?
train --run.dir h2 --data.eval 'year=2020/eval-0000.bin'; judge hive_eval $?

mkdir t && cp data/train-0-0000.bin data/data.json t
train --run.dir c --data.train 't/*.bin' --train.steps 20 && cp data/train-1-0000.bin t
train --run.dir c --data.train 't/*.bin' --train.steps 40
grep -q 'level=warn.*\(shard\|text\|token\)' out || grep -q '^atoll train' out
[ $? -eq 0 ] && say changed_text holds || say changed_text FAILS "exit 0 and no word of it"

train --run.dir s1; one=$(parameters); train --run.dir s2 --data.train 'data/train-0-*.bin,data/train-0-0000.bin'
[ "$one" = "$(parameters)" ] && grep -q level=warn out && say same_shard_twice holds || say same_shard_twice FAILS "counted twice, or without a word"

# ---- signals ----
lines() { wc -l 2>/dev/null <g/metrics.jsonl || echo 0; }
more_than() { [ "$(lines)" -gt "$1" ]; }
gone() { ! kill -0 "$1" 2>/dev/null; }
stop() { # SIGNAL, and a word before the command; then `alive` says whether it continues
    rm -rf g
    $2 "$A" train --config run.yaml --run.dir g --train.steps 1000000 --train.checkpoint_every 0 >/dev/null 2>&1 &
    p=$!
    until_true more_than 30
    kill -"$1" $p
    before=$(lines)
    until_true eval 'gone $p || more_than $((before + 200))'
    gone $p && alive=no || alive=yes
    kill -TERM $p 2>/dev/null
    wait $p
    code=$?
}
stop HUP ""; [ $code = 75 ] && [ $alive = no ] && say hangup holds || say hangup FAILS "exit code $code, checkpoints: $(ls g/inner 2>/dev/null | wc -l)"
stop HUP nohup; [ $alive = yes ] && say hangup_nohup holds || say hangup_nohup FAILS "exit code $code"

# ---- keys and addresses ----
for c in "authority --run k --dir tls" "issue --role site --name a --dir tls" "issue --role aggregator --host localhost --dir tls"; do "$A" cert $c >/dev/null 2>&1; done
if command -v openssl >/dev/null && [ -s tls/a.key ]; then
    cp -r tls enc && openssl pkcs8 -topk8 -in tls/a.key -passout pass:secret -out enc/a.key 2>/dev/null; chmod 600 enc/a.key
    timeout 100 setsid "$A" train --config run.yaml --run.name k --run.dir e --outer.sites a,b --site.name a --site.aggregator localhost:9 --tls.dir enc >out 2>&1 </dev/null
    code=$?
    ! grep -qi 'pass phrase:' out && [ $code -ne 124 ] && grep -qi 'encrypted' out; judge encrypted_key $?
    timeout 100 "$A" serve --config run.yaml --run.name k --outer.sites a,b --tls.dir tls --serve.dir v --serve.listen ::1:17999 >out 2>&1
    ! grep -q 'in use' out; judge bare_ipv6 $?
else
    say encrypted_key skipped "no openssl, or this build has no network"
    say bare_ipv6 skipped "the same"
fi

# ---- memory; root only: tests/inner/train holds both as a function of the files of /proc and /sys ----
group=/sys/fs/cgroup/memory/atoll-case-$$
if mkdir "$group" 2>/dev/null; then
    echo 300000000 >"$group/memory.limit_in_bytes"
    (echo $BASHPID >"$group/cgroup.procs"; exec "$A" train --config run.yaml --run.dir mem --model.d_model 1024 --model.heads 8 --model.layers 8 --log.progress none) >out 2>&1
    code=$?
    until_true rmdir "$group" 2>/dev/null
    [ $code = 137 ] && say memory_limit FAILS "killed by the kernel, exit code 137" || say memory_limit holds "$(first out)"
else
    say memory_limit skipped "no control group of version 1 can be made here"
fi
cat >cache.sh <<'X'
mount --make-rprivate / && mount -t tmpfs tmpfs /sys/fs/cgroup || exit 99
echo 4000000000 >/sys/fs/cgroup/memory.max; echo 3995000000 >/sys/fs/cgroup/memory.current
printf 'anon 20000000\nfile 3900000000\ninactive_file 3800000000\nactive_file 100000000\n' >/sys/fs/cgroup/memory.stat
"$1" train --config run.yaml --run.dir pc --log.progress none
X
if unshare -m true 2>/dev/null; then
    unshare -m bash cache.sh "$A" >out 2>&1
    code=$?
    [ $code = 99 ] && say page_cache skipped "no mount" || judge page_cache $code
else
    say page_cache skipped "needs root"
fi

# ---- TensorBoard ----
"$A" train --config run.yaml --run.dir tb --run.tensorboard true --train.steps 400 --train.checkpoint_every 20 --log.progress none >out 2>&1 &
p=$!
until_true grep -q 'ev=checkpoint step=40' out
until_true eval 'gone $p || [ "$(grep -c "\"step\"" tb/metrics.jsonl)" -gt 45 ]'
kill -9 $p 2>/dev/null
wait $p 2>/dev/null
train --run.dir tb --run.tensorboard true --train.steps 400 --train.checkpoint_every 20
python3 "$here/sessions.py" tb/tensorboard/* >said 2>&1 && say tensorboard holds "$(cat said)" || say tensorboard FAILS "$(cat said)"
exit $wrong
