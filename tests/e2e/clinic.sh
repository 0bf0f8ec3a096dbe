#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deploy/examples/clinic.yaml over three small CSV files: labels, an encoder, secure sums and privacy for a patient, by the commands
# of its first lines. No patient is at two sites' parts or on both sides of a hold-out; reports have commas, line breaks and tabs.
. "$(dirname "$0")/lib.sh"
free_port
"$atoll" data --tokenizer wordpiece --learn 512 --documents --out text text.txt >text.out 2>&1 || fail "a vocabulary"
for site in north south west; do
    awk -v site=$site 'BEGIN {
        print "patient,age,diagnosis,report"
        for (i = 0; i < 400; i++)
            printf "%s %d,%d,%s,\"%s, said \"\"no\"\".\r\n\tsite %d token %d\"\r\n", site, i / 4, 20 + i % 60,
                i % 3 == 0 ? "benign" : i % 3 == 1 ? "malignant" : "unclear",
                i % 3 == 0 ? "network link" : i % 3 == 1 ? "round commit" : "text shard", i % 7, i % 5
    }' >$site.csv
    mkdir -p $site
    "$atoll" data --labels --tokenizer text --csv owner=patient,label=diagnosis,text=report --held-out 0.1 --out $site/labels $site.csv \
        >$site/data.out 2>&1 || fail "labels of $site: $(head -1 $site/data.out)"
    grep -q "100 owners" $site/data.out || fail "$site: the patients are not counted: $(cat $site/data.out)"
done
sha=$(sed -n 's/.*"sha256": "\([0-9a-f]*\)".*/\1/p' text/data.json)
"$atoll" cert authority --run clinic --dir tls >cert.out 2>&1 || fail "atoll cert authority"
"$atoll" cert issue --role aggregator --host localhost,127.0.0.1 --dir tls >>cert.out 2>&1 || fail "atoll cert issue"
for site in north south west; do "$atoll" cert issue --role site --name $site --dir tls >>cert.out 2>&1 || fail "atoll cert issue $site"; done
# The example as it is, but for a smaller model, fewer steps, and this machine.
cp "$repository/deploy/examples/clinic.yaml" run.yaml
settings="--data.tokenizer_sha256 $sha --model.vocab_size 512 --model.layers 1 --model.heads 2 --model.d_model 32 --model.max_seq_len 64
    --train.seq_len 64 --train.batch_tokens 4096 --train.steps 20 --train.warmup_steps 2 --train.checkpoint_every 10 --device.threads 1
    --site.aggregator 127.0.0.1:$port --site.aggregator_name localhost --serve.listen 127.0.0.1:$port"
serve
for site in north south west; do
    # shellcheck disable=SC2086
    "$atoll" train --config run.yaml $settings --site.name $site --run.dir $site/run --data.train "$site/labels/train-0-*.bin" \
        --data.eval "$site/labels/eval-*.bin" --log.progress none >$site.out 2>&1 &
    eval "$site=\$!"
    processes="$processes $!"
done
for site in north south west; do
    eval "wait \$$site" || fail "site $site: $(grep -v ^ts= $site.out | head -3)"
    grep -q "ev=secure" $site.out && grep -q "ev=privacy" $site.out || fail "$site does not say what it promises"
    [ "$(cut -d ' ' -f 1 $site/run/inner/privacy.charges | sort -u | wc -l)" = 20 ] || fail "$site: not every step is charged"
    grep -q "unit=owner .*records=90 " $site/run/inner/privacy.charges || fail "$site: a record is not a patient: $(head -1 $site/run/inner/privacy.charges)"
    "$atoll" privacy ledger $site/run >ledger.out 2>&1 || fail "the ledger of $site"
done
serve_ends
"$atoll" privacy verify north/run south/run west/run >verify.out 2>&1 || fail "atoll privacy verify: $(cat verify.out)"
"$atoll" privacy verify north/run south/run west/run --format json >verify.json || fail "atoll privacy verify --format json"
python3 - <<'END' || fail "text and JSON of privacy verify differ"
import json, re
text, sites = open("verify.out").read(), json.load(open("verify.json"))["sites"]
assert [f"{s['payloads']} masked payloads, {s['bytes']} bytes" for s in sites] == re.findall(r"\d+ masked payloads, \d+ bytes", text)
assert all(s["budget"]["proved"] and not s["not_proved"] and f"{s['budget']['charged_steps']} steps charged" in text for s in sites)
END
echo "clinic: ok"
