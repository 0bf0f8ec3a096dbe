#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: deploy/prepare-tasks.sh labels rows by the wrong side of the rating, lets a text be in both parts, or
# orders them again each time. Its sentiment archive is made here; the real ones need apt-get and pip.
. "$(dirname "$0")/lib.sh"
command -v perl >/dev/null && command -v python3 >/dev/null || {
    echo "SKIPPED: no perl or python3 here"
    exit 77
}
archive=hutto_ICWSM_2014
mkdir -p $archive vaderSentiment-3.3.2/additional_resources tasks/packages
awk 'BEGIN { for (i = 0; i < 2400; i++) {
    rating = i % 3 == 0 ? 2.5 : i % 3 == 1 ? -0.5 : 0.4
    printf "%d\t%s\ta %s film, number %d  of many\r\n", i, rating, (rating > 0 ? "good" : "bad"), int(i / 6)
} }' >$archive/movieReviewSnippets_GroundTruth.txt
for set in amazonReviewSnippets tweets nytEditorialSnippets; do
    printf '1_1\t-3\tbad\r\n1_2\t0\tneither\r\n1_3\t0.51\ta\tgood one\r\n' >$archive/${set}_GroundTruth.txt
done
tar -czf vaderSentiment-3.3.2/additional_resources/$archive.tar.gz $archive
tar -czf tasks/packages/vaderSentiment-3.3.2.tar.gz vaderSentiment-3.3.2
mkdir -p again/packages
cp tasks/packages/*.tar.gz again/packages/
for out in tasks again; do
    "$repository/deploy/prepare-tasks.sh" --no-apt $out >$out.out 2>&1 || fail "prepare-tasks"
done
cmp tasks/movie.train.tsv again/movie.train.tsv && cmp tasks/movie.test.tsv again/movie.test.tsv || fail "another order"
# 1,600 of the 2,400 ratings are .5 or further from 0; each text comes twice and stays in one part.
[ "$(cat tasks/movie.*.tsv | wc -l)" = 1600 ] || fail "rows of movie"
[ "$(wc -l <tasks/movie.test.tsv)" = 1008 ] || fail "held-out rows: 1007, and the pair's second half"
cut -f 2 tasks/movie.train.tsv | sort -u >train.texts
cut -f 2 tasks/movie.test.tsv | sort -u | comm -12 train.texts - >both.texts
[ ! -s both.texts ] || fail "texts in both parts"
if grep -v '^positive.a good film, number [0-9]* of many$' tasks/movie.train.tsv | grep -v '^negative.a bad film, '; then
    fail "labels"
fi
printf 'negative\tbad\npositive\ta good one\n' | sort >wanted
sort tasks/tweets.test.tsv | cmp wanted - || fail "rows of tweets"
grep -q 'licences' tasks.out || fail "licences"

# Naive Bayes by hand: one label each, "good" once and "bad" once; counts 1 + 1 of 2 + 2 words or bigrams.
printf 'p\tgood\nn\tbad\n' >two.tsv
printf 'p\tgood good\nn\tbad\np\tbad\n' >three.tsv
python3 "$repository/tests/bench/naive_bayes.py" two.tsv three.tsv >bayes.out || fail "naive_bayes.py"
grep -q '66.7 % of 3' bayes.out || fail "naive Bayes"
echo "tasks: ok"
