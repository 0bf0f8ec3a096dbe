# SPDX-License-Identifier: Apache-2.0
# What demo-bert.sh and demo-private.sh share. Sourced by a script with the arguments PROGRAM TASKS OUT and options, which has set
# demo to its name, and the defaults of --labels, --steps, --tune-steps and --epsilon (empty: not an option of it) in labels, steps,
# tune and epsilon. Then the working directory is OUT, which is empty.
here=$(cd "$(dirname "$0")" && pwd)
program=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
tasks=$(cd "$2" && pwd)
out=$3
shift 3
unknown() {
    echo "$demo: unknown option $1; see the head of $0" >&2
    exit 4
}
while [ $# -gt 0 ]; do
    case $1 in
    --epsilon) [ -n "$epsilon" ] || unknown "$1"; epsilon=$2 ;;
    --labels) labels=$2 ;;
    --steps) steps=$2 ;;
    --tune-steps) tune=$2 ;;
    *) unknown "$1" ;;
    esac
    shift 2
done
rm -rf "$out"
mkdir -p "$out"
cd "$out"
processes=""
cleanup() {
    for p in $processes; do kill "$p" 2>/dev/null || :; done
}
trap cleanup EXIT
trap 'exit 1' INT TERM
fail() {
    echo "$demo: $1" >&2
    tail -n 5 ./*.log >&2
    exit 1
}
start=$(date +%s)
say() { printf '%4d s  %s\n' $(($(date +%s) - start)) "$*"; }
port=$((10000 + $$ % 20000))
export OMP_WAIT_POLICY=passive

# shards TEXT SITES LABEL_SITES: text/ of this text, labels/ of the first $labels glosses, held/; sets sha, classes, count
shards() {
    head -n "$labels" "$tasks/glosses.train.tsv" >labels.tsv
    "$program" data --tokenizer wordpiece --learn 4096 --split-sentences --out text --sites "$2" --held-out 0.02 "$1" >text.log 2>&1 ||
        fail "atoll data"
    "$program" data --labels --tokenizer text --out held --held-out 0 "$tasks/glosses.test.tsv" >held.log 2>&1 ||
        fail "atoll data --labels"
    "$program" data --labels --tokenizer text --out labels --sites "$3" --held-out 0 --classes-of held labels.tsv >labels.log 2>&1 ||
        fail "atoll data --labels"
    sha=$(sed -n 's/.*"sha256": "\([0-9a-f]*\)".*/\1/p' text/data.json)
    classes=$(sed -n 's/^ *classes: \(\[".*\]\)$/\1/p' labels.log)
    count=$(sed -n 's/^ *classes: \[\([0-9]*\)\]$/\1/p' labels.log)
}
# model HEAD: of the configurations
model() {
    echo "model: {vocab_size: 4096, layers: 2, heads: 4, d_model: 128, d_ff: 320, max_seq_len: 64, causal: false, positions: rope, activation: geglu,
        bias: false, embed_norm: true, $1}"
}
# places NAME: of the configuration, where the processes find each other
places() {
    cat <<END
site: {aggregator: "127.0.0.1:$port", aggregator_name: localhost}
tls: {dir: tls-$1}
serve: {listen: "127.0.0.1:$port", dir: $1/aggregator}
END
}
certificates() { # certificates NAME SITE...
    run=$1
    shift
    "$program" cert authority --run "$run" --dir "tls-$run" >"cert-$run.log" 2>&1 &&
        "$program" cert issue --role aggregator --host localhost,127.0.0.1 --dir "tls-$run" >>"cert-$run.log" 2>&1 || fail "certificates"
    for s in "$@"; do
        "$program" cert issue --role site --name "$s" --dir "tls-$run" >>"cert-$run.log" 2>&1 || fail "certificates"
    done
}
value() { sed -n "s/.*\"$1\":\(-\{0,1\}[0-9.e-]*\).*/\1/p" "$2"; }
percent() { awk "BEGIN {printf \"%.1f %%\", 100 * $1}"; }
