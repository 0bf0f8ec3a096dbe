#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Labelled text and plain text for encoders, from Debian's and PyPI's packages; nothing of it is in this repository.
#   deploy/prepare-tasks.sh OUT            downloads (apt-get, pip), unpacks and writes below OUT
#   deploy/prepare-tasks.sh --no-apt OUT   the same without Debian's packages: the sentiment sets only
#   deploy/prepare-tasks.sh --glosses OUT  the glosses alone: needs neither pip nor the other packages
# Rows are `label<TAB>text[<TAB>text_b]`, in an order that depends on the text alone, so that the first n rows are a random
# sample of n; NAME.train.tsv and NAME.test.tsv share no text.
#   movie      positive or negative            amazon, tweets, editorials: the same labels, only .test.tsv
#   glosses    what a noun's gloss is about, 26 classes
#   is-a       does the second gloss define what the first is a kind of?
#   text.txt   plain text: documents end with an empty line; a paragraph is a line
# Then:  tests/bench/naive_bayes.py OUT/glosses.train.tsv OUT/glosses.test.tsv
set -eu

packages="wordnet-base dict-gcide dict-foldoc anarchism debian-reference-en"
vader=vaderSentiment==3.3.2
apt=yes
glosses=

fail() {
    echo "prepare-tasks: $1" >&2
    exit 4
}

usage() {
    sed -n '3,13s/^# \{0,1\}//p' "$0"
}

while [ $# -gt 0 ]; do
    case $1 in
    --help | -h) usage; exit 0 ;;
    --no-apt) apt=; shift ;;
    --glosses) glosses=only packages=wordnet-base; shift ;;
    -*) fail "unknown option $1; see --help" ;;
    *) break ;;
    esac
done
[ $# -eq 1 ] || fail "name one output folder; see --help"
out=$1
here=$(dirname "$0")
work=$out/packages
mkdir -p "$work"
for program in perl tar gzip; do
    command -v $program >/dev/null || fail "$program is missing"
done

# ---- packages ----
fetch_debian() {
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
        fail "no apt-get and dpkg-deb here: this is not Debian; --no-apt leaves its packages out"
    for package in $packages; do
        set -- "$work/$package"_*.deb
        [ -e "$1" ] || (cd "$work" && apt-get download -q "$package" >/dev/null 2>download.log) ||
            fail "apt-get download $package: $(tail -n 1 "$work/download.log")"
        set -- "$work/$package"_*.deb
        dpkg-deb -x "$1" "$work/root" || fail "$1 cannot be unpacked"
    done
}

fetch_vader() {
    if [ ! -e "$work/vaderSentiment-3.3.2.tar.gz" ]; then
        # An old setuptools has no package wheel: then pip brings both, for itself.
        for isolation in --no-build-isolation ""; do
            # shellcheck disable=SC2086 # an empty word is none
            python3 -m pip download -q --no-deps $isolation --no-binary :all: -d "$work" $vader >"$work/pip.log" 2>&1 && break
        done
        [ -e "$work/vaderSentiment-3.3.2.tar.gz" ] || fail "pip download $vader: $(tail -n 1 "$work/pip.log")"
    fi
    tar -xzf "$work/vaderSentiment-3.3.2.tar.gz" -C "$work"
    tar -xzf "$work/vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz" -C "$work"
}

# ---- rows ----
# Ordered by a hash of the text (FNV-1a).
deal() {
    perl -ne '
        BEGIN { binmode STDIN; binmode STDOUT }
        chomp;
        my (undef, $text) = split /\t/, $_, 2;
        my $h = 2166136261;
        $h = (($h ^ ord) * 16777619) & 0xffffffff for split //, $text;
        push @rows, [$h, $_];
        END { print "$$_[1]\n" for sort { $$a[0] <=> $$b[0] || $$a[1] cmp $$b[1] } @rows }
    '
}

# NAME TEST: the first TEST rows of standard input are held out; the border lies between two texts.
split_rows() {
    deal >"$work/$1.tsv"
    perl -e '
        my ($in, $train, $test, $count) = @ARGV;
        open my $i, "<", $in or die; open my $a, ">", $train or die; open my $b, ">", $test or die;
        while (<$i>) {
            my $text = (split /\t/, $_, 2)[1];
            print { $. <= $count || $text eq $last ? $b : $a } $_;
            $last = $text if $. <= $count;
        }
    ' "$work/$1.tsv" "$out/$1.train.tsv" "$out/$1.test.tsv" "$2" || fail "$1 cannot be written"
}

# The mean of twenty ratings from -4 to 4: rows within .5 of neutral are left out.
sentiment() {
    perl -ne '
        s/\r?\n$//;
        my (undef, $rating, $text) = split /\t/, $_, 3;
        $text =~ s/[\s\t]+/ /g;
        $text =~ s/^ | $//g;
        next unless $text =~ /\S/ && abs $rating >= 0.5;
        print $rating > 0 ? "positive" : "negative", "\t$text\n";
    ' "$work/hutto_ICWSM_2014/$1_GroundTruth.txt"
}

# WordNet: offset lexicographer_file type words pointers | gloss. MODE: topic, pairs or text.
wordnet() {
    perl -e '
        my ($mode, @files) = @ARGV;
        my @names = qw(adj.all adj.pert adv.all tops act animal artifact attribute body cognition communication event feeling
                       food group location motive object person phenomenon plant possession process quantity relation shape
                       state substance time);
        for my $file (@files) {
            open my $in, "<", $file or die "$file: $!\n";
            my $type = $file =~ /noun/ ? "n" : "v";
            while (<$in>) {
                next if /^ /;
                chomp;
                my ($head, $gloss) = split / \| /, $_, 2;
                my @f = split / /, $head;
                my $words = hex $f[3];
                my $at = 4 + 2 * $words;
                my $pointers = $f[$at++];
                $gloss =~ s/\s+/ /g;
                $gloss =~ s/^ | $//g;
                my $id = "$type$f[0]";
                (my $word = $f[4]) =~ tr/_/ /;
                print "$names[$f[1]]\t$gloss\n" if $mode eq "topic";
                print join(", ", map { (my $w = $f[4 + 2 * $_]) =~ tr/_/ /; $w } 0 .. $words - 1), ": $gloss\n\n"
                    if $mode eq "text";
                push @ids, $id;
                $text{$id} = "$word: $gloss";
                for my $p (0 .. $pointers - 1) {
                    my ($kind, $to) = @f[$at + 4 * $p, $at + 4 * $p + 1];
                    $above{$id} = "$type$to" if $kind eq "@" && !$above{$id};
                }
            }
        }
        exit unless $mode eq "pairs";
        # Every second synset has the hypernym of another one next to it: that of one 4,000 further.
        my @have = grep { $above{$_} } @ids;
        for my $i (0 .. $#have) {
            my $id = $have[$i];
            my $true = $i % 2 == 0;
            my $with = $true ? $above{$id} : $above{$have[($i + 4000) % @have]};
            $true = 1 if $with eq $above{$id};
            print $true ? "yes" : "no", "\t$text{$id}\t$text{$with}\n";
        }
    ' "$@" || fail "WordNet cannot be read"
}

# ---- plain text ----
# A page is a document, a paragraph a line.
pages() {
    for page in "$@"; do
        perl -0777 -ne '
            s/<!--.*?-->|<(script|style|head|pre)\b.*?<\/\1>//gsi;
            s/<\/?(?:p|h\d|li|div|tr|ul|ol|dt|dd|blockquote|br)\b[^>]*>/\n/gi;
            s/<[^>]*>//g;
            s/&nbsp;/ /g; s/&lt;/</g; s/&gt;/>/g; s/&quot;/"/g; s/&\#(\d+);/$1 < 128 ? chr $1 : " "/ge; s/&amp;/&/g;
            my $printed;
            for (split /\n\s*\n|\n(?=\n)/) {
                s/\s+/ /g; s/^ | $//g;
                next if length() < 40;
                print "$_\n";
                $printed = 1;
            }
            print "\n" if $printed;
        ' "$page"
    done
}

# The dictionary of computing: an entry is a document.
foldoc() {
    gzip -dc "$work/root/usr/share/dictd/foldoc.dict.dz" | perl -00 -ne '
        my $new = /^\S/;
        next unless $started ||= /^(?!00-database|http|Free On-line)[^\s]+/;
        s/%%%/, /g; s/\s+/ /g; s/^ | $//g; tr/{}//d;
        next if length() < 2;
        print $new && $printed ? "\n$_\n" : "$_\n";
        $printed = 1;
    '
}

english() {
    set -- "$work/root/usr/share/doc/anarchism/html/"*.html
    pages "$@"
    set -- "$work"/root/usr/share/debian-reference/*.en.html
    [ ! -e "$1" ] || pages "$@"
    foldoc
    echo
    wordnet text "$work"/root/usr/share/wordnet/data.noun "$work"/root/usr/share/wordnet/data.verb \
        "$work"/root/usr/share/wordnet/data.adj "$work"/root/usr/share/wordnet/data.adv
    "$here/prepare-text.sh" --dictionary "$work/root/usr/share/dictd/gcide.dict.dz" "$work/gcide.txt" 2>/dev/null
    cat "$work/gcide.txt"
}

# ---- all ----
count() {
    printf '  %-22s %7d rows, %2d classes\n' "$1" "$(wc -l <"$out/$1")" "$(cut -f 1 "$out/$1" | sort -u | wc -l)" >&2
}

if [ "$glosses" ]; then
    fetch_debian
    wordnet topic "$work/root/usr/share/wordnet/data.noun" | split_rows glosses 4000
    count glosses.train.tsv
    count glosses.test.tsv
    exit 0
fi
fetch_vader
sentiment movieReviewSnippets | split_rows movie 1007
sentiment amazonReviewSnippets | deal >"$out/amazon.test.tsv"
sentiment tweets | deal >"$out/tweets.test.tsv"
sentiment nytEditorialSnippets | deal >"$out/editorials.test.tsv"
if [ "$apt" ]; then
    fetch_debian
    noun=$work/root/usr/share/wordnet/data.noun
    wordnet topic "$noun" | split_rows glosses 4000
    wordnet pairs "$noun" "$work/root/usr/share/wordnet/data.verb" | split_rows is-a 4000
    english | iconv -c -f UTF-8 -t UTF-8 >"$out/text.txt"
fi
# Titles, and what their licences ask for, as the packages say.
cat >&2 <<'END'
prepare-tasks: licences
  movie, amazon, tweets, editorials  vaderSentiment (MIT), Hutto and Gilbert 2014; the snippets belong to their authors: Rotten
                                     Tomatoes (Pang and Lee), Amazon, Twitter, The New York Times; cite the paper
  glosses, is-a, text.txt            WordNet 3.0, Princeton University (WordNet licence: use, copy, change, keep the notice)
  text.txt                           The Collaborative International Dictionary of English (GPL), FOLDOC (GFDL), An Anarchist FAQ
                                     (GPL), Debian Reference (GPL)
END
echo "prepare-tasks: in $out" >&2
for file in "$out"/*.tsv; do
    count "$(basename "$file")"
done
if [ "$apt" ]; then
    printf '  %-22s %7d documents, %d words\n' text.txt "$(grep -c '^$' "$out/text.txt")" "$(wc -w <"$out/text.txt")" >&2
fi
