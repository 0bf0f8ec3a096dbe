#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: who has a GPU gets a build without it and no word why; the ranks of a machine are not started, not
# stopped, or left over when one is lost; a cut download is trained on; a script does not even parse.
. "$(dirname "$0")/lib.sh"
deploy=$repository/deploy
for script in "$deploy"/*.sh "$deploy"/slurm/*; do
    bash -n "$script" 2>parse.out || fail "$script does not parse"
done

# --- --help says what the script does, and runs nothing ----------------------------------------------------------
for script in run-tests reproduce reliability renew; do
    "$deploy/$script.sh" --help >help.out 2>&1 || fail "$script.sh --help"
    grep -q "deploy/$script.sh" help.out && [ "$(wc -l <help.out)" -lt 16 ] || fail "$script.sh --help says something else"
done

# --- deploy/build.sh: with or without the GPU module ------------------------------------------------------------
mkdir -p copy tools
cp -r "$deploy" copy/deploy
for tool in cmake ninja nvcc; do printf '#!/bin/sh\necho %s "$@"\n' "$tool" >tools/$tool; done
printf '#!/bin/sh\nprintf "9.0\\n9.0\\n8.0\\n12.0\\n7.5\\n"\n' >tools/nvidia-smi
chmod +x tools/*
builds() { # builds "WORDS|WORDS" VARIABLE=VALUE...: with these, log and output have all these words; "!WORDS": they have not
    words=$1
    shift
    rm -rf copy/build
    code=0
    env -u CUDACXX -u CUDA_HOME PATH="$PWD/tools:$PATH" "$@" copy/deploy/build.sh atoll >build.out 2>&1 || code=$?
    [ ! -e copy/build/build.log ] || cat copy/build/build.log >>build.out
    echo "exit code $code" >>build.out
    while [ -n "$words" ]; do
        word=${words%%|*}
        case $words in *"|"*) words=${words#*|} ;; *) words="" ;; esac
        case $word in
        !*) if grep -qF -- "${word#!}" build.out; then fail "build.sh with $*: \"${word#!}\" is said"; fi ;;
        *) grep -qF -- "$word" build.out || fail "build.sh with $*: \"$word\" is not said" ;;
        esac
    done
}
nothing=/nowhere there=$PWD/tools/nvcc # stand for the driver's file
builds "exit code 0|--target atoll|ATOLL_CUDA=ON|!-DCUDA" ATOLL_DRIVER=$nothing
builds "exit code 0|tools/nvcc|-DCUDA=ON|-DCUDA_ARCHITECTURES=80-real;90a-real;120-real|!75" ATOLL_DRIVER="$there"
builds "exit code 0|-DCUDA=ON|!ARCHITECTURES" ATOLL_DRIVER=$nothing ATOLL_CUDA=ON
builds "exit code 0|-DCUDA=OFF" ATOLL_DRIVER="$there" ATOLL_CUDA=OFF
builds "exit code 4|ON, OFF or auto" ATOLL_CUDA=yes
builds "exit code 0|-DWERROR=OFF" ATOLL_DRIVER=$nothing
builds "exit code 0|-DWERROR=ON|-DCUDA=OFF" ATOLL_CUDA=OFF ATOLL_WERROR=ON

# A user's build continues after a warning, that of the tests does not.
printf '#!/bin/sh\n' | tee tools/ctest >copy/deploy/install.sh
chmod +x tools/ctest
for wanted in ON OFF; do
    rm -rf copy/build
    env PATH="$PWD/tools:$PATH" ATOLL_CUDA=OFF ATOLL_WERROR="$(echo $wanted | grep OFF)" copy/deploy/run-tests.sh >build.out 2>&1 || fail "run-tests.sh"
    grep -q -- "-DWERROR=$wanted" copy/build/build.log || fail "run-tests.sh builds without -DWERROR=$wanted"
done
rm tools/nvcc
if ! command -v nvcc >/dev/null && ! ls /usr/local/cuda*/bin/nvcc >/dev/null 2>&1; then
    builds "exit code 0|install-cuda.sh|!-DCUDA" ATOLL_DRIVER="$PWD/tools/cmake"
    builds "exit code 4|install-cuda.sh" ATOLL_DRIVER=$nothing ATOLL_CUDA=ON
fi

# --- deploy/ranks.sh: the ranks of one machine ----------------------------------------------------------------
cat >rank.sh <<'END'
#!/bin/bash
trap 'exit 75' USR1
echo "$RANK of $WORLD_SIZE, $LOCAL_RANK here, at $MASTER_ADDR:$MASTER_PORT" >>ranks.txt
[ "$RANK" != "${LOST:-}" ] || exit 9
for i in $(seq "${TENTHS:-1}"); do sleep 0.1; done
END
chmod +x rank.sh
NODES=2 NODE=1 MASTER_ADDR=node0 MASTER_PORT=7001 "$deploy/ranks.sh" 2 ./rank.sh || fail "ranks.sh"
[ "$(sort ranks.txt | tr '\n' ';')" = "2 of 4, 0 here, at node0:7001;3 of 4, 1 here, at node0:7001;" ] || fail "ranks.sh: the ranks' numbers"
code=0
bounded env TENTHS=30000 LOST=1 "$deploy/ranks.sh" 3 ./rank.sh >lost.out 2>&1 || code=$?
[ "$code" = 9 ] && grep -q "rank 1 ended with exit code 9" lost.out || fail "ranks.sh: a lost rank"
for signal in USR1 TERM INT; do
    rm ranks.txt
    TENTHS=30000 "$deploy/ranks.sh" 2 ./rank.sh >stop.out 2>&1 &
    pid=$!
    until_lines 2 "of 2" ranks.txt
    [ $signal != INT ] || { kill -USR1 "$pid"; signal=USR1; } # what a script starts in the background ignores INT
    kill -$signal "$pid" 2>/dev/null
    ends 75 "$pid" "ranks.sh after $signal"
done

# The program itself, two ranks over the stand-in for NCCL where this build has it.
fake=$(dirname "$atoll")/../tests/nccl
if [ -e "$fake/libatoll_nccl.so" ]; then
    mkdir program
    cp "$atoll" program/atoll
    cp "$fake"/libatoll_*.so program/
    "$atoll" data --out data text.txt >data.out 2>&1 || fail "atoll data"
    "$deploy/ranks.sh" 2 program/atoll train --device.kind cuda --data.train data/train-0-0000.bin --train.steps 5 --train.warmup_steps 1 \
        --train.batch_tokens 512 --model.layers 1 --model.d_model 32 --log.progress none --run.dir run >train.out 2>&1 || fail "two ranks by ranks.sh"
    grep -q "ranks=2 coll=nccl" train.out && grep -q "ev=final step=5" train.out || fail "two ranks by ranks.sh"
fi

# --- deploy/fetch-shards.sh -----------------------------------------------------------------------------------
if command -v curl >/dev/null; then
    mkdir mirror
    [ -e data/eval-0000.bin ] || "$atoll" data --out data text.txt >data.out 2>&1 || fail "atoll data"
    cp data/eval-*.bin mirror/fineweb_val_000000.bin
    cp data/train-0-0000.bin mirror/fineweb_train_000001.bin
    head -c 5000 data/train-0-0000.bin >mirror/fineweb_train_000002.bin
    SHARDS_URL=file://$PWD/mirror "$deploy/fetch-shards.sh" shards 1 >fetch.out 2>&1 || fail "fetch-shards.sh"
    cmp -s mirror/fineweb_train_000001.bin shards/fineweb_train_000001.bin || fail "another shard than the mirror's"
    for n in 2 3; do # cut short; not there
        code=0
        SHARDS_URL=file://$PWD/mirror "$deploy/fetch-shards.sh" shards $n >fetch.out 2>&1 || code=$?
        [ "$code" = $((n - 1)) ] && [ ! -e shards/fineweb_train_00000$n.bin ] || fail "fetch-shards.sh, shard $n: exit code $code"
        cp data/train-0-0000.bin mirror/fineweb_train_000002.bin
    done
fi

# --- the demo, as short as it may be ----------------------------------------------------------------------------
if "$atoll" doctor | grep -q "^network yes"; then
    "$atoll" demo --text text.txt --dir demo --steps 20 --train.eval_tokens 2048 >demo.out 2>&1 || fail "a demo of 20 steps"
    grep -q "two sites together" demo.out && [ -s demo/report.html ] || fail "the demo's summary"
    if command -v node >/dev/null; then
        node "$here/page.js" text demo/report.html >page.out 2>&1 && grep -q "eval loss of one site alone" page.out || fail "the demo's report"
    fi
    if command -v python3 >/dev/null; then
        "$atoll" demo --text text.txt --dir demo --steps 20 --train.eval_tokens 2048 --format json >demo.json 2>json.out || fail "a demo in JSON"
        cat >demo.py <<'END'
import json
said, text = json.load(open("demo.json")), open("demo.out").read()
assert f"two sites together         {said['eval_loss']['together']:.4f}" in text, "training repeats bit for bit, and so does its loss"
assert f"  {said['rounds']} rounds" in text and said["report"] == "demo/report.html" and said["sample"].startswith("The ")
for site in said["sites"]:
    assert site["up"]["predicted"] == site["up"]["payload"] < site["up"]["wire"]
    assert abs(sum(site["time_shares"].values()) - 1) < 1e-6
END
        python3 demo.py >json.out 2>&1 || fail "the demo's JSON is not its text"
    fi
fi
echo "deploy/'s scripts do as they say"
