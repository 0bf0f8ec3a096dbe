#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: accuracy on a multiple-choice task is another one than lm-evaluation-harness or llm.c find for the same
# model and file: the prompt, the ids of a choice, what is cut from a long context, the log-likelihood, the pick of equal choices.
# A reference in Python scores the exported model in float64.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "SKIPPED: no python3"; exit 77; }

settings="--model.layers 2 --model.d_model 16 --model.max_seq_len 512 --train.seq_len 64 --train.steps 60 --train.lr 0.03"
configure a
"$atoll" train --config run.yaml $settings --site.aggregator "" --site.name "" --outer.sites "" --run.dir alone --data.train "data/train-*.bin" --log.progress none >alone.out 2>&1 ||
    fail "the training"
"$atoll" export --config run.yaml $settings --from alone --out hf >export.out 2>&1 || fail "atoll export"
python3 "$here/choices.py" write
tasks="--eval.tasks hellaswag=hellaswag.jsonl,arc=arc.jsonl,query=query.jsonl,bin=hellaswag.bin"
for kind in details "format json"; do
    "$atoll" eval --config run.yaml $settings $tasks --data.eval "" --from alone --$kind >"${kind%% *}.jsonl" 2>eval.out || fail "atoll eval --$kind"
    "$atoll" eval --config run.yaml $settings --eval.tasks "mmlu=mmlu.jsonl,csv=*_test.csv" --train.seq_len 512 --train.batch_tokens 512 --eval.shots 2 --eval.shots_from "mmlu=dev.jsonl,csv=*_dev.csv" --data.eval "" \
        --from alone --$kind >>"${kind%% *}.jsonl" 2>eval.out || fail "atoll eval --$kind of MMLU"
done
python3 "$here/choices.py" compare hf details.jsonl || fail "other scores or picks than the reference"
python3 "$here/choices.py" totals format.jsonl || fail "other accuracies than the picks"

# The same with byte-level BPE, whose ids a text's neighbours change.
tokenize=$(dirname "$atoll")/../tests/tokenize
if [ -x "$tokenize" ]; then
    head -c 300000 text.txt >little.txt
    "$atoll" data --tokenizer bpe --learn 300 --out bpe --sites 1 --seq-len 64 --force little.txt >bpe.out 2>&1 || fail "atoll data --learn"
    vocab=$(sed -n 's/.*a vocabulary of \([0-9]*\).*/\1/p' bpe.out)
    bpe="$settings --model.vocab_size $vocab --data.tokenizer external --data.train bpe/train-*.bin --data.eval bpe/eval-*.bin --site.aggregator= --site.name= --outer.sites="
    "$atoll" train --config run.yaml $bpe --train.steps 20 --run.dir bpe-alone --log.progress none >bpe-alone.out 2>&1 || fail "the training with BPE"
    "$atoll" export --config run.yaml $bpe --from bpe-alone --out bpe-hf >export.out 2>&1 || fail "atoll export with BPE"
    "$atoll" eval --config run.yaml $bpe --eval.tasks hellaswag=hellaswag.jsonl,arc=arc.jsonl,query=query.jsonl --from bpe-alone --details \
        >bpe.jsonl 2>eval.out || fail "atoll eval with BPE"
    python3 "$here/choices.py" compare bpe-hf bpe.jsonl "$tokenize" bpe || fail "other scores or picks than the reference with BPE"
    rm bpe/tokenizer.json
    "$atoll" eval --config run.yaml $bpe --eval.tasks arc=arc.jsonl --from bpe-alone >refused.out 2>&1 && fail "texts without a tokenizer"
    grep -q "arc.jsonl has texts, and there is no tokenizer" refused.out || fail "the refusal of texts without a tokenizer"
else
    echo "NOT CHECKED: no $tokenize, so no task with BPE"
fi

# Files that are wrong, by file and line; and a model that has no next id.
refused() { # refused WORDS ARGUMENTS...
    words=$1
    shift
    "$atoll" eval --config run.yaml $settings --from alone "$@" >refused.out 2>&1 && fail "not refused: $*"
    grep -q -- "$words" refused.out || fail "the refusal of $*"
}
head -c 1100 hellaswag.bin >short.bin
refused "short.bin: question 0: no token ids" --eval.tasks x=short.bin
printf '\n{"query":"a","choices":["b","c"],"gold":2}\n' >label.jsonl
refused 'label.jsonl: line 2: "gold" names none of its 2 choices' --eval.tasks x=label.jsonl
echo '{"question":"a"}' >none.jsonl
refused 'none.jsonl: line 1: no question of HellaSwag' --eval.tasks x=none.jsonl
for bad in 'a,b,c,d,e;5 fields, and a question' 'a,b,c,d,e,;the last field, "", is not A, B, C or D' 'a,b,c,d,e,f,A;7 fields' \
    'a,b,c,d,e,E;the last field, "E", is not' 'a,"b"c,d,e,f,A;field 2 has text after the quote that closes it' \
    'a,"b,c,d,e,A;the quote that begins field 2 is not closed' 'a\377,b,c,d,e,A;field 1 is no UTF-8'; do
    printf '"x\r\n""y""",1,2,3,4,B\r\n\r\n'"${bad%%;*}" >bad_test.csv
    refused "bad_test.csv: line 4: ${bad#*;}" --eval.tasks x=bad_test.csv
done
printf 'x,1,2,3,4,B\n' >nameless.csv
refused "nameless.csv: line 1: a file of MMLU is named SUBJECT_test.csv" --eval.tasks x=nameless.csv
refused "none_\*.csv: no file matches" --eval.tasks 'x=none_*.csv'
refused "hellaswag.bin: worked examples are JSON lines or MMLU's CSV" --eval.tasks x=mmlu.jsonl --eval.shots 1 --eval.shots_from x=hellaswag.bin
rm bad_test.csv
"$atoll" eval --config run.yaml $settings --from alone --eval.tasks 'x=*_test.csv' --eval.questions 1 --data.eval "" --format json >one.jsonl 2>one.out ||
    fail "one question of each file"
grep -q '"questions":2[,}]' one.jsonl || fail "eval.questions is of each file"
refused "eval.shots = 9 worked examples of abstract_algebra are wanted" --eval.tasks x=mmlu.jsonl --eval.shots 9 --eval.shots_from x=dev.jsonl
refused "model.causal = false: choices are scored" --eval.tasks x=arc.jsonl --model.causal false --data.objective mlm
refused 'eval.tasks: "arc.jsonl" is not NAME=FILE' --eval.tasks arc.jsonl
python3 -c 'print("{\"query\":\"a\",\"choices\":[\"" + "b" * 65 + "\",\"c\"],\"gold\":0}")' >long.jsonl
refused "long.jsonl: choice 0 of question 0 has 66 tokens, train.seq_len = 64" --eval.tasks x=long.jsonl
echo "choices: ok"
