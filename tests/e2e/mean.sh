#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: --mean N of eval, sample and export is not the mean of the newest N states, or a directory that keeps fewer is
# taken for one that keeps enough. Rounds of the aggregator and checkpoints of a site are two ways to the same parameters; the mean in
# float64 is computed here.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "SKIPPED: no python3"; exit 77; }

checkpoint_every=8
settings="--train.checkpoint_keep 4 --serve.keep_states 4"
configure a,b
undisturbed
of() { # of COMMAND DIRECTORY ARGUMENTS...
    command=$1 from=$2
    shift 2
    "$atoll" "$command" --config run.yaml $settings --from "$from" "$@"
}
equal() { cmp "$1/model.safetensors" "$2/model.safetensors" || fail "$1 and $2 differ"; }

# Each of the last four checkpoints alone: the newest one of a directory without its newer ones.
for step in 16 24 32 40; do
    mkdir -p "alone/$step/inner"
    cp -r "a/inner/000000$step" "alone/$step/inner/"
    of export "alone/$step" --out "out.$step" >export.out 2>&1 || fail "export of step $step"
done
for n in 1 2 4; do
    of export aggregator --mean $n --out "rounds.$n" >export.out 2>&1 || fail "export --mean $n of the aggregator"
    of export a --mean $n --out "steps.$n" >export.out 2>&1 || fail "export --mean $n of a site"
    equal "rounds.$n" "steps.$n"
done
equal rounds.1 out.40
of export aggregator --out newest >export.out 2>&1 || fail "export without --mean"
equal newest rounds.1
python3 - <<'END' || fail "not the mean of the last states"
import array, json, struct
def values(folder):
    data = open(folder + "/model.safetensors", "rb").read()
    found = array.array("f")
    found.frombytes(data[8 + struct.unpack("<Q", data[:8])[0]:])
    return found
alone = [values(f"out.{step}") for step in (40, 32, 24, 16)]
for n in (2, 4):
    worst = max(abs(m - sum(x) / n) for m, *x in zip(values(f"rounds.{n}"), *alone[:n]))
    moved = max(abs(m - x) for m, x in zip(values(f"rounds.{n}"), alone[0]))
    assert worst < 1e-6 < 1e-3 < moved, (n, worst, moved)
END

# What eval scores is the model that export writes.
of eval aggregator --mean 4 --format json >eval.json 2>eval.out || fail "eval --mean"
"$atoll" import --config run.yaml --run.dir imported --model rounds.4 >import.out 2>&1 || fail "import"
of eval imported --format json >imported.json 2>eval.out || fail "eval of the imported mean"
loss() { sed 's/.*"loss":\([0-9.]*\).*/\1/' "$1"; }
[ "$(loss eval.json)" = "$(loss imported.json)" ] || fail "eval --mean 4: $(cat eval.json); of its export: $(cat imported.json)"
grep -q "mean of outer rounds 2 to 5" eval.json || fail "eval does not say of which rounds: $(cat eval.json)"

refused() { # refused WORDS COMMAND DIRECTORY ARGUMENTS...
    words=$1
    shift
    of "$@" >refused.out 2>&1 && fail "not refused: $*"
    grep -q -- "$words" refused.out || fail "the refusal of $*"
}
refused "does not keep round 1 of fragment 0; serve.keep_states is how many" eval aggregator --mean 5
refused "a/inner has 4 checkpoints; train.checkpoint_keep is how many" sample a --mean 5
refused "moments are of one step" export a --mean 2 --checkpoint --out refused
printf x | dd of=aggregator/frag/0/3/state bs=1 seek=600 conv=notrunc 2>dd.out
refused "aggregator/frag/0/3/state: damaged" eval aggregator --mean 4
of eval aggregator --mean 2 >eval.out 2>&1 || fail "a damaged state that is not needed is in the way"

cp -r a damaged
printf x | dd of=damaged/inner/00000024/state bs=1 seek=600 conv=notrunc 2>dd.out
refused "inner/00000024/state: damaged" eval damaged --mean 4
of sample a --mean 4 --tokens 5 >sample.out 2>&1 || fail "sample --mean"

# Streamed fragments: of each its own last rounds.
rm -rf a b aggregator ./*.out
settings="$settings --serve.keep_states 9 --outer.fragments 2"
undisturbed
for n in 1 2; do of export aggregator --mean $n --out "two.$n" >export.out 2>&1 || fail "export --mean $n of two fragments"; done
python3 - <<'END' || fail "a tensor of two fragments is not averaged"
import json, struct
def tensors(folder):
    data = open(folder + "/model.safetensors", "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    return {n: data[8 + size:][slice(*t["data_offsets"])] for n, t in head.items() if n != "__metadata__"}
newest, mean = tensors("two.1"), tensors("two.2")
same = [n for n in newest if newest[n] == mean[n]]
assert len(newest) > 20 and not same, same
END
# The parameters that a run begins from are kept, and are no round.
[ -f aggregator/frag/0/0/state ] || fail "round 0 is not kept"
refused "aggregator has 5 rounds of fragment 0" eval aggregator --mean 6
echo "mean: ok"
