#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plain English text for training, one file, entries separated by blank lines.
#   deploy/prepare-text.sh OUT                 the dictionary of Debian's package dict-gcide, without its mark-up, as UTF-8
#   deploy/prepare-text.sh --dictionary PATH OUT   the same from another copy of its gcide.dict.dz
#   deploy/prepare-text.sh --text PATH OUT     your own: a text file, also .gz
# Then:  atoll data --out DIR --sites 2 OUT
set -eu

dictionary=/usr/share/dictd/gcide.dict.dz
text=

fail() {
    echo "prepare-text: $1" >&2
    exit 4
}

usage() {
    sed -n '3,7s/^# \{0,1\}//p' "$0"
}

# Entries begin in column 0 and hold indented paragraphs, most of them ending in their source ("[1913 Webster]"), after
# which the next headword is repeated. Paragraph by paragraph: join lines, drop sources, pronunciation, cross-reference
# braces and letter codes ("[=e]").
clean() {
    perl -00 -ne '
        my $new = /^\S/;
        next unless $started ||= /^\S+ \\/; # the database describes itself before the first entry
        s/\s+/ /g;
        s/\s*\[[^\[\]]*(?:Webster|WordNet|PJC|Century Dict)[^\[\]]*\].*$//;
        s/\\[^\\]*\\(?:,? \([^()]*\))?//g if $new;
        s/\[[^A-Za-z\[\] ]*([a-z]{1,2}?)(?:um|mac|acr)?[^A-Za-z\[\] ]*\]/$1/g;
        tr/{}//d;
        s/ +([,.;:])/$1/g;
        s/,{2,}/,/g;
        s/ +/ /g;
        s/^ | $//g;
        next if $_ eq "";
        print $new && $printed ? "\n$_\n" : "$_\n";
        $printed = 1;
    '
}

while [ $# -gt 0 ]; do
    case $1 in
    --help | -h) usage; exit 0 ;;
    --text) [ $# -ge 2 ] || fail "--text needs a PATH"; text=$2; shift 2 ;;
    --dictionary) [ $# -ge 2 ] || fail "--dictionary needs a PATH"; dictionary=$2; shift 2 ;;
    --text=*) text=${1#--text=}; shift ;;
    -*) fail "unknown option $1; see --help" ;;
    *) break ;;
    esac
done
[ $# -eq 1 ] || fail "name one output file; see --help"
out=$1
mkdir -p "$(dirname "$out")"

if [ -n "$text" ]; then
    [ -r "$text" ] && [ -f "$text" ] || fail "$text: not a readable file"
    case $text in
    *.gz) gzip -dc -- "$text" >"$out.tmp" || fail "$text: cannot be unpacked" ;;
    *) cp -- "$text" "$out.tmp" ;;
    esac
else
    [ -r "$dictionary" ] || fail "$dictionary is missing: apt-get install dict-gcide, or give --text PATH"
    gzip -dc <"$dictionary" | iconv -c -f UTF-8 -t UTF-8 | clean >"$out.tmp" # it has three bytes that are not UTF-8
fi
[ -s "$out.tmp" ] || fail "no text came out"
mv "$out.tmp" "$out"
echo "text     $(wc -c <"$out") bytes in $out" >&2
