#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: the bits of a run. Short runs with nearly every setting end with the recorded parameters, momentum,
# residual, losses, and do the same at the same steps (tests/golden/digests/README.md).
#   tests/e2e/digests.sh ATOLL SCRATCH                 all rows against the record; names those that differ
#   tests/e2e/digests.sh ATOLL SCRATCH --quick         the rows marked q
#   tests/e2e/digests.sh ATOLL SCRATCH NAME...         these rows
#   tests/e2e/digests.sh ATOLL SCRATCH --record        writes the record
# DIGESTS_JOBS: runs at a time (3). Exit code 77: the record is of another class of machine, and here the bits differ.
. "$(dirname "$0")/lib.sh"
shift 2
golden=$repository/tests/golden/digests
record=""
chosen=""
quick=""
for word in "$@"; do
    case $word in
    --record) record=yes ;;
    --quick) quick=yes ;;
    *) chosen="$chosen $word " ;;
    esac
done

# NAME | marks | settings of all processes. A later setting wins over the base: two sites, 24 steps, a round of one fragment every 8
# steps, int8 (lib.sh: configure). Marks: q quick; t the trace is recorded; l the loss of every step is recorded; mpi site a has two
# ranks; two two aggregators; three three sites; absent the third never comes; share site b takes twice the tokens; still nothing is
# learned, and the parameters are those of the start, the same on all machines. Keys are written here alone.
rows() {
    cat <<'END'
base            | q t | --outer.codec int8
four            | q t | --outer.fragments 4
four_quorum     | q t | --outer.fragments 4 --outer.mode quorum --outer.max_local_steps_offline 3
absent          | t absent three | --outer.mode quorum --outer.straggler_timeout_s 2
f32             | q   | --outer.codec f32
bf16            |     | --outer.codec bf16
int4            | q   | --outer.codec int4
int2            |     | --outer.codec int2
e3m0            |     | --outer.codec e3m0
fp8_e4m3        |     | --outer.codec fp8_e4m3
fp8_e5m2        |     | --outer.codec fp8_e5m2
fp8_sr          |     | --outer.codec fp8_sr
topk            | q   | --outer.codec topk
sign            |     | --outer.codec sign
csc             | q   | --outer.codec csc
int4_four       |     | --outer.codec int4 --outer.fragments 4
topk_four       |     | --outer.codec topk --outer.fragments 4
topk_reencode   | q   | --outer.codec topk --outer.downlink_compression_from 2
topk_reencode_4 |     | --outer.codec topk --outer.downlink_compression_from 2 --outer.fragments 4 --outer.overlap_steps 2
fp8_reencode    |     | --outer.codec fp8_e4m3 --outer.downlink_compression_from 2
e3m0_reencode   |     | --outer.codec e3m0 --outer.downlink_compression_from 2 --outer.full_precision_rounds 2
csc_reencode    |     | --outer.codec csc --outer.downlink_compression_from 2
feedback        | q   | --outer.codec int2 --outer.error_feedback_decay 0.5
back_off        |     | --outer.codec int2 --outer.residual_reset 0.5 --train.steps 40
back_off_topk   |     | --outer.codec topk --outer.residual_reset 1 --train.steps 40 --outer.downlink_compression_from 2
full_precision_rounds    |     | --outer.codec int4 --outer.full_precision_rounds 3 --train.steps 40
overlap         | q t | --outer.overlap_steps 3
overlap_four    | q t | --outer.fragments 4 --outer.overlap_steps 5 --outer.codec int4
overlap_quorum  | t   | --outer.fragments 4 --outer.overlap_steps 5 --outer.mode quorum --outer.max_local_steps_offline 3
overlap_mix     |     | --outer.overlap_steps 3 --outer.update_alpha 0.25
delay           | q t | --outer.fragments 2 --outer.sync_every 6 --outer.overlap_steps 6
delay_mix       |     | --outer.sync_every 4 --outer.overlap_steps 4 --outer.update_alpha 0.5
before_mix      |     | --outer.sync_every 4 --outer.overlap_steps 2 --outer.before_update true --outer.update_alpha 0.5
delay_one       | t   | --outer.sync_every 4 --outer.overlap_steps 4
eager           | q t | --outer.fragments 2 --outer.sync_every 6 --outer.overlap_steps 6 --outer.eager true
eager_int2      |     | --outer.fragments 2 --outer.sync_every 6 --outer.overlap_steps 6 --outer.eager true --outer.codec int2
before_update   | q t | --outer.fragments 4 --outer.sync_every 4 --outer.overlap_steps 2 --outer.before_update true
before_average  |     | --outer.sync_every 4 --outer.overlap_steps 1 --outer.before_update true --outer.optimizer average --outer.codec f32
sequential      |     | --outer.fragments 4 --outer.partition sequential --model.layers 6
strided_six     |     | --outer.fragments 4 --model.layers 6
balanced        |     | --outer.fragments 4 --outer.partition balanced
random          |     | --outer.fragments 4 --outer.partition random
slices          | q t | --outer.fragments 3 --outer.partition slices --outer.slices embed-0@2,1-2@5,3-final@8 --outer.sync_every 9
slices_overlap  | t   | --outer.fragments 3 --outer.partition slices --outer.slices embed-0@2,1-2@5,3-final@8 --outer.sync_every 9 --outer.overlap_steps 2
slices_again    | t   | --outer.fragments 3 --outer.partition slices --outer.slices embed-0@3,1-2@2+4,3-final@1+2+5 --outer.sync_every 6 --outer.overlap_steps 1 --outer.before_update true --outer.optimizer average --outer.codec bf16
grow            | q t | --outer.sync_every 2 --outer.interval_schedule 2,2,8 --outer.fragments 2
radial          | q   | --outer.codec e3m0 --outer.merge radial --outer.lr 0.5
annealed        | q   | --outer.lr_schedule cosine --outer.momentum_restart 2 --outer.sync_every 4
moments         | q t | --outer.moment1_every 8 --outer.moment2_every 16
moments_four    | t   | --outer.fragments 4 --outer.moment1_every 16 --outer.moment2_every 24 --outer.moments_codec f32 --train.optimizer adamw
moments_int8    |     | --outer.moment1_every 8 --outer.moment2_every 8 --outer.moments_codec int8 --outer.overlap_steps 2
delayed         | q   | --outer.optimizer delayed_nesterov --outer.nesterov_period 2 --train.steps 40
sgd             |     | --outer.optimizer sgd --outer.lr 0.7
average         |     | --outer.optimizer average
outer_lr        |     | --outer.lr 0.7 --outer.momentum 0.8
adamw           | q   | --train.optimizer adamw
qhadam          |     | --train.optimizer qhadam
lans            |     | --train.optimizer lans --train.max_grad_norm 0
came            |     | --train.optimizer came
merit           |     | --train.optimizer merit
muon            | q   | --train.optimizer muon
bf16_model      | q   | --device.dtype bf16
bf16_stochastic |     | --device.dtype bf16 --train.rounding stochastic --train.optimizer adamw
llama           | q   | --model.positions rope --model.norm rms --model.activation swiglu --model.bias false --model.tie_embeddings false
llama_groups    | q   | --model.positions rope --model.norm rms --model.activation swiglu --model.bias false --model.heads 4 --model.kv_heads 2
llama_bf16      |     | --model.positions rope --model.norm rms --model.activation swiglu --model.bias false --model.heads 4 --model.kv_heads 1 --device.dtype bf16
gelu_erf        |     | --model.activation gelu_erf --model.positions none --model.d_ff 64
micro           | q   | --train.micro_batch_tokens 32
micro_bf16      |     | --train.micro_batch_tokens 64 --device.dtype bf16
recompute       | q   | --train.activation_checkpointing block
short_sequence  |     | --train.seq_len 16
schedule_linear |     | --train.lr_schedule linear --train.stable_steps 6 --train.warmup_steps 3
schedule_none   |     | --train.lr_schedule none --train.max_grad_norm 0 --train.weight_decay 0
eval_checkpoint |     | --train.eval_every 5 --train.checkpoint_every 3
seed            |     | --run.seed 11 --outer.fragments 2
drawn           | q   | --outer.sync_fraction 0.1 --outer.codec bf16
share           | share | --outer.fragments 2
share_squared   | share | --outer.weights tokens2_per_step --outer.merge radial --outer.codec f32 --outer.lr 0.5
three           | q t three | --outer.fragments 2
three_quorum    | three | --outer.fragments 2 --outer.mode quorum --outer.codec int4 --outer.overlap_steps 3
three_relayed   | three | --outer.codec fp8_e4m3
three_reencode  | three | --outer.codec topk --outer.downlink_compression_from 3
three_delay     | three | --outer.sync_every 4 --outer.overlap_steps 4 --outer.eager true
two             | q t two | --outer.fragments 4 --outer.aggregators 2
ranks           | q mpi | --train.bucket_mb 0
ranks_zero      | mpi | --train.zero_stage 1
ranks_bf16_sums | mpi | --train.grad_reduce_dtype bf16
ranks_both      | mpi | --train.zero_stage 1 --train.grad_reduce_dtype bf16 --train.optimizer adamw --train.micro_batch_tokens 32
ranks_local     | q mpi | --train.optimizer adamw --train.compress zeroone --train.compress_start 0.2 --train.warmup_steps 4 --train.local_max 4 --train.local_grow 0.1
ranks_muon      | mpi | --train.optimizer muon --train.muon_scale spectral
odd_96          | q l | --train.batch_tokens 96
odd_96_micro    | l   | --train.batch_tokens 96 --train.micro_batch_tokens 32
odd_192_ranks   | l mpi | --train.batch_tokens 192
still           | q still | --train.lr 0 --outer.fragments 4 --outer.codec f32
END
}

row_settings() { rows | sed -n "s/^$1 *|[^|]*| *//p"; }
row_marks() { rows | sed -n "s/^$1 *| *\([^|]*\)|.*/\1/p"; }
marked() { case " $(row_marks "$1") " in *" $2 "*) true ;; *) false ;; esac; }

export DNNL_MAX_CPU_ISA=AVX2 # the library's products; our own loops take the processor's best, which is in class()
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe # Open MPI 5; below: Open MPI 4
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none

# On what the bits may depend, next to the program's source.
class() {
    "$atoll" doctor 2>/dev/null | sed -n 's/^cpu \(isa=[^ ]*\) .*\(gemm=".*\)/\1 \2/p'
    "$atoll" --version | sed -n 's/.*, \(.*\))/compiler=\1/p'
    sed -n 's/^model name[^:]*: */processor=/p' /proc/cpuinfo | head -n 1
    sed -n 's/^cpu family[^:]*: */family=/p;s/^model\t*: */model=/p' /proc/cpuinfo | head -n 2
    if grep -q __asan_init "$atoll"; then echo sanitized=yes; else echo sanitized=no; fi
}

have_mpi() { command -v mpirun >/dev/null && "$atoll" doctor 2>/dev/null | grep -q '^mpi yes'; }

# The text: the licence sixteen times over, the same in every checkout.
[ "$(sha256sum <"$repository/LICENSE" | cut -c 1-16)" = cfc7749b96f63bd3 ] || fail "LICENSE is not the text that was recorded"
i=0
while [ $i -lt 16 ]; do
    cat "$repository/LICENSE"
    i=$((i + 1))
done >text.txt
steps=24 straggler_timeout_s=60 checkpoint_every=1000
configure a,b,c # rows have a and b alone, but for those of three
base_port=$port

# value KEY FILE KIND: of the last record of that kind
value() { sed -n "s/.*\"kind\":\"$3\".*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$2" | tail -n 1; }
losses() { sed -n 's/.*"kind":"step".*"step":\([0-9]*\),"loss":\([^,]*\),"norm":\([^,]*\),.*/\1 \2 \3/p' "$1/metrics.jsonl"; }

shards() { echo "data shards=$(cat data/*.bin | sha256sum | cut -c 1-64)"; }

digest() { # digest NAME: one line a site
    for s in $members; do
        m=$s/metrics.jsonl
        echo "$1.$s parameters=$(value parameters $m final) momentum=$(value momentum $m final)" \
            "residual=$(value residual $m final) outer=$(value outer $m final) held_out=$(value loss $m eval)" \
            "losses=$(losses $s | sha256sum | cut -c 1-16)"
    done
}

# What the sites did, at which step; what the aggregator committed, fragment by fragment. Records have no time in them here, and
# nothing that depends on a value of the model: the same on all machines. "after": the steps on record at that moment.
trace() {
    for s in $members; do
        awk -v site=$s 'function of(key,   at) {
                if (!match($0, "\"" key "\":[^,}]*")) return "-"
                at = substr($0, RSTART, RLENGTH); sub(/^[^:]*:/, "", at); return at }
            /"kind":"step"/ { steps = of("step") }
            /"kind":"round"/ { print "site " site ": after step " steps + 0 ", step " of("step") ", fragment " of("fragment") \
                ", round " of("round") ", included " of("included") " of " of("sites") ", replayed " of("replayed") \
                ", weight " of("weight") ", up " of("up_predicted") ", down " of("down_predicted"); up += of("up"); down += of("down") }
            END { print "site " site ": bytes up " up + 0 ", down " down + 0 }' $s/metrics.jsonl
    done
    cat serve*.out | sed -n 's/.* ev=commit \(.*\) bytes=\([0-9]*\).*/commit: \1 bytes=\2/p' | sort -s -t= -k2,2n -k3,3n
}

ranks_of_a() {
    ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" mpirun -n 2 "$atoll" train --config run.yaml --site.name a \
        --run.dir a --data.train 'data/train-0-*.bin' --log.progress none $settings >>a.out 2>&1 &
    pid=$!
    processes="$processes $pid"
}

aggregators() { # aggregators INDEX...: each listens at a port of its own
    for index in "$@"; do
        "$atoll" serve --config run.yaml $settings --serve.index "$index" --serve.dir "aggregator-$index" \
            --serve.listen "127.0.0.1:$((port + index))" >"serve-$index.out" 2>&1 &
        serve_pid=$!
        processes="$processes $serve_pid"
        until_lines 1 "ev=listening" "serve-$index.out"
    done
}

run_row() { # run_row NAME PORT, in a process of its own
    processes=""
    trap cleanup EXIT
    trap 'exit 1' INT TERM
    name=$1 port=$2
    mkdir -p "rows/$name"
    cd "rows/$name"
    ln -s ../../data ../../tls ../../run.yaml .
    while grep -qis ":$(printf %04x $port) [0-9a-f]*:[0-9a-f]* 0a" /proc/net/tcp /proc/net/tcp6; do port=$((port + 100)); done
    address=127.0.0.1:$port
    if marked "$name" two; then address=$address,127.0.0.1:$((port + 1)); fi
    members="a b"
    settings="--site.aggregator $address --outer.sites a,b"
    if marked "$name" three; then settings="--site.aggregator $address"; fi
    if marked "$name" three && ! marked "$name" absent; then members="a b c"; fi
    settings="$settings $(row_settings "$name")"
    if marked "$name" two; then
        aggregators 0 1
    else
        serve --serve.listen "$address"
        listening
    fi
    if marked "$name" mpi; then ranks_of_a; else train a; fi
    a=$pid
    if marked "$name" share; then train b --site.batch_scale 2; else train b; fi
    b=$pid
    if [ "$members" = "a b c" ]; then
        train c
        ends 0 "$pid" "$name: site c"
    fi
    if marked "$name" absent; then ended=6; else ended=0; fi # the last round is without a site
    ends $ended "$a" "$name: site a"
    ends $ended "$b" "$name: site b"
    if ! marked "$name" absent; then serve_ends; fi # else it waits for the site that never comes
    digest "$name" >digests
    if marked "$name" t; then trace >trace; fi
    if marked "$name" l; then losses a >losses; fi
    touch done
}

lane() { # lane FIRST JOBS NAME...: every JOBS-th row, one after the other
    skip=$1 jobs=$2
    shift 2
    row_pid=""
    trap 'kill "$row_pid" 2>/dev/null; exit 1' INT TERM
    lane_port=$((base_port + 10 * skip))
    for name in "$@"; do
        if [ $((skip % jobs)) -eq 0 ]; then
            (run_row "$name" $lane_port) >"$name.log" 2>&1 &
            row_pid=$!
            wait "$row_pid" || :
        fi
        skip=$((skip + 1))
    done
}

names=""
for name in $(rows | sed 's/ .*//'); do
    case "$chosen" in "" | *" $name "*) ;; *) continue ;; esac
    if [ -n "$quick" ] && ! marked "$name" q; then continue; fi
    if marked "$name" mpi && ! have_mpi; then
        echo "left out: $name: no MPI here"
        continue
    fi
    names="$names $name"
done
[ -n "$names" ] || fail "no such row:$chosen"
lanes="" k=0 jobs=${DIGESTS_JOBS:-3}
trap 'kill $lanes 2>/dev/null; exit 1' INT TERM
while [ $k -lt "$jobs" ]; do
    lane $k "$jobs" $names &
    lanes="$lanes $!"
    k=$((k + 1))
done
for l in $lanes; do wait "$l" || :; done

broken=""
for name in $names; do
    if [ ! -e "rows/$name/done" ]; then
        broken="$broken $name"
        echo "--- $name did not end"
        cat "$name.log"
    fi
done

if [ -n "$record" ]; then
    [ -z "$broken" ] || fail "not recorded:$broken"
    [ -z "$chosen$quick" ] || fail "only all rows are recorded"
    mkdir -p "$golden"
    rm -f "$golden"/digests.txt "$golden"/trace_*.txt "$golden"/losses_*.txt
    {
        "$atoll" --version | sed 's/^/# made by /'
        class | sed 's/^/# class: /'
        shards
        for name in $names; do cat "rows/$name/digests"; done
    } >"$golden/digests.txt"
    for name in $names; do
        for kind in trace losses; do
            [ ! -e "rows/$name/$kind" ] || cp "rows/$name/$kind" "$golden/${kind}_$name.txt"
        done
    done
    echo "recorded: $(grep -c '\.a ' "$golden/digests.txt") rows"
    exit 0
fi

# parts LINE LINE: the names of what differs
parts() {
    for field in $2; do
        case " $1 " in *" $field "*) ;; *) printf ' %s' "${field%%=*}" ;; esac
    done
}
other="" did=""
if ! grep -qx "$(shards)" "$golden/digests.txt"; then
    did=" data"
    echo "OTHER SHARDS: $(shards)"
fi
for name in $names; do
    [ -e "rows/$name/done" ] || continue
    differs=""
    for s in a b c; do
        is=$(grep "^$name\.$s " "rows/$name/digests" || :)
        was=$(grep "^$name\.$s " "$golden/digests.txt" || :)
        [ -n "$is$was" ] || continue # no such site in this row
        if [ -z "$was" ]; then
            differs="$differs; site $s is not on record"
        elif [ "$is" != "$was" ]; then
            differs="$differs; site $s:$(parts "$was" "$is")"
        fi
    done
    if [ -e "rows/$name/losses" ] && ! diff "$golden/losses_$name.txt" "rows/$name/losses" >losses.diff; then
        differs="$differs; losses from step $(sed -n 's/^[<>] \([0-9]*\).*/\1/p' losses.diff | head -n 1)"
    fi
    if [ -n "$differs" ] && marked "$name" still && [ "${differs#*parameters}" != "$differs" ]; then
        did="$did $name"
        echo "STARTS OTHERWISE: $name"
    fi
    if [ -n "$differs" ]; then
        other="$other $name"
        echo "DIFFERS: $name${differs}   ($(row_settings "$name"))"
    fi
    if [ -e "rows/$name/trace" ] && ! diff "$golden/trace_$name.txt" "rows/$name/trace" >trace.diff; then
        did="$did $name"
        echo "DOES OTHERWISE: $name   ($(row_settings "$name"))"
        head -n 10 trace.diff
    fi
done
[ -z "$broken" ] || fail "did not end:$broken"
if [ -n "$did" ]; then
    echo "FAILED: not as on every machine:$did"
    exit 1
fi
sed -n 's/^# class: //p' "$golden/digests.txt" >class.was
class >class.is
if [ -n "$other" ] && ! cmp -s class.was class.is; then
    echo "SKIPPED: the traces agree; the bits were recorded on another class of machine, and differ here:$other"
    diff class.was class.is || :
    exit 77
fi
if [ -n "$other" ]; then
    echo "FAILED: other bits:$other"
    exit 1
fi
echo "as recorded: $(echo "$names" | wc -w) rows"
