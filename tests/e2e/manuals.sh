#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What breaks if this fails: a manual page, the completion of a shell or the schema of the configuration says what the program does not.
. "$(dirname "$0")/lib.sh"

"$repository/deploy/manuals.sh" "$atoll" man
[ -s man/atoll.1 ] && [ -s man/atoll-train.1 ] || fail "no manual pages"
for page in man/*.1; do
    grep -q '^\.SH NAME' "$page" && grep -q '^\.SH EXIT STATUS' "$page" || fail "$page has no name or no end"
    # A line that begins with a period or an apostrophe is a request: only those that are meant.
    ! grep -nE "^['.]" "$page" | grep -vE '^[0-9]+:\.(TH|SH|TP|B|I|BR|nf|fi)( |$)' || fail "$page: a line of text is taken for a request"
    ! command -v groff >/dev/null || { groff -man -ww -z "$page" 2>&1 | tee groff.out && [ ! -s groff.out ]; } || fail "$page: groff warns"
done
# Each option of --help is in the page and among the words.
"$atoll" --help=words | cut -f 1 >commands
[ "$(wc -l <commands)" -ge 20 ] || fail "atoll --help=words names $(wc -l <commands) commands"
while read -r command; do
    [ -s "man/atoll-$command.1" ] || fail "no page of $command"
    "$atoll" "$command" --help | sed -n 's/^  \(--[a-z0-9-]*\) .*/\1/p' | grep -v -- '^--section' >options || :
    "$atoll" "$command" --help=words | cut -f 1 | tr -d '=' >words
    while read -r option; do
        grep -qx -- "$option" words || fail "$command: $option is not among the words"
        sed 's/\\-/-/g' "man/atoll-$command.1" | grep -q -- "^\.B $option" || fail "$command: $option is not in the page"
    done <options
done <commands
"$atoll" cert --help=words | grep -q '^issue	' || fail "atoll cert --help=words has no issue"
grep -q '^\.TH ATOLL-OPERATOR-ROSTER-ADD 1' man/atoll-operator-roster-add.1 || fail "the page of roster add has another title"

# The completion of bash.
if command -v bash >/dev/null; then
    cat >complete.bash <<'END'
source "$1"
compopt() { :; }
complete_words() { COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=(); _atoll; echo "${COMPREPLY[*]}"; }
[ "$(complete_words "$2" sampl)" = sample ]
[ "$(complete_words "$2" cert iss)" = issue ]
[ "$(complete_words "$2" cert issue --hos)" = --host= ]
[ "$(complete_words "$2" train --outer.momentum_res)" = --outer.momentum_restart= ]
END
    bash -eu complete.bash "$repository/deploy/completions/atoll.bash" "$atoll" || fail "completion in bash"
fi

# Those of zsh, typed at a terminal of its own, and of fish: subcommand, its act, option, key; then a flag and a file.
touch run.yaml
cat >typed <<'END'
atoll samp
atoll cert iss
atoll cert issue --hos
atoll train --dry-run --outer.momentum_res
atoll train --dry-r
atoll train --config=ru
atoll report run.y
END
cat >complete.zsh <<'END'
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "PS1= PROMPT_EOL_MARK= fpath=($1 \$fpath); unsetopt prompt_cr zle_bracketed_paste; autoload -Uz compinit; compinit -u -D
show() { print -r -- \"<\$BUFFER>\"; BUFFER=; }; zle -N show; bindkey '^X' show; print rea''dy"
zpty -r z seen '*ready*'
while read -r line; do
    zpty -w -n z "$line"$'\t\x18'
    zpty -r z seen '*<*>*'
    print -r -- "${${seen##*<}%%>*}"
done
END
cat >zsh.want <<'END'
atoll sample 
atoll cert issue 
atoll cert issue --host=
atoll train --dry-run --outer.momentum_restart=
atoll train --dry-run 
atoll train --config=run.yaml 
atoll report run.yaml 
END
cat >complete.fish <<'END'
source $argv[1]
while read -l line
    complete -C "$line" | string replace -r '\t.*' ''
end
exit 0
END
cat >fish.want <<'END'
sample
issue
--host=
--outer.momentum_restart=
--dry-run
--config=run.yaml
run.yaml
END
shells=bash
for shell in "zsh -f complete.zsh $repository/deploy/completions" \
    "fish --no-config complete.fish $repository/deploy/completions/atoll.fish"; do
    name=${shell%% *}
    command -v "$name" >/dev/null || { echo "SKIPPED in part: $name is not installed, its completion is not tested" && continue; }
    PATH=$(dirname "$atoll"):$PATH HOME=$PWD bounded $shell <typed >"$name.seen" 2>"$name.out" || fail "completion in $name"
    tr -d '\r' <"$name.seen" | diff "$name.want" - >"$name.out" || fail "completion in $name: wanted <, seen >"
    shells="$shells, $name"
done

# The schema has each key of the reference page and takes the examples.
"$atoll" train --help-keys --format json-schema >schema.json
if command -v python3 >/dev/null; then
    "$atoll" train --help-keys >keys.md
    cat >schema.py <<'END'
import json, re, sys
schema = json.load(open("schema.json"))
keys = {f"{s}.{k}" for s, section in schema["properties"].items() for k in section["properties"]}
page = {k for k in re.findall(r"^\| `([a-z]+\.[a-z0-9_]+)` \|", open("keys.md").read(), re.M)}
renamed = {k for k in re.findall(r"^\| `([a-z]+\.[a-z0-9_]+)` \| `", open("keys.md").read(), re.M)}
missing = {k for k in page - renamed - keys if not k.startswith(("plan.", "gpu.", "ranks."))}
assert not missing, f"not in the schema: {sorted(missing)}"
assert not keys - page, f"not on the page: {sorted(keys - page)}"
for section in schema["properties"].values():
    for name, key in section["properties"].items():
        value = key.get("default")
        assert value is None or "enum" not in key or value in key["enum"], f"{name}: {value} is not among {key['enum']}"
        assert not isinstance(value, float) or key["minimum"] <= value <= key["maximum"], name
END
    python3 schema.py || fail "the schema is not that of the reference page"
fi
code=0
"$atoll" train --help-keys --format toml >refused.out 2>&1 || code=$?
[ $code = 4 ] && grep -q "markdown, json-schema or words" refused.out || fail "--format toml: exit code $code"

# A name from the log, or at the end of a command, is explained.
for name in commit ev=plan DISAGREE disk_full; do
    "$atoll" help $name >event.out || fail "atoll help $name"
    grep -q "${name#ev=}" event.out && grep -q "^ *do: ." event.out || fail "atoll help $name does not explain it"
done
code=0
"$atoll" help ev=nosuch >refused.out 2>&1 || code=$?
[ $code = 4 ] && grep -q "no event or error" refused.out || fail "atoll help of an event that is none: exit code $code"

# cmake --install puts all of it where the units look.
if command -v cmake >/dev/null && [ -e "$(dirname "$atoll")/../cmake_install.cmake" ]; then
    DESTDIR=$PWD/root cmake --install "$(dirname "$atoll")/.." --prefix /usr --component atoll >install.out 2>&1 || fail "cmake --install"
    for file in bin/atoll bin/atoll-renew bin/atoll-ranks share/man/man1/atoll-cert-issue.1 share/atoll/config.schema.json \
        share/bash-completion/completions/atoll lib/systemd/system/atoll-serve.service; do
        [ -s "root/usr/$file" ] || fail "cmake --install: no $file"
    done
    for command in $(sed -n 's/^ExecStart=\/usr\/\(bin\/[a-z-]*\) .*/\1/p' root/usr/lib/systemd/system/*.service); do
        [ -x "root/usr/$command" ] || fail "a unit starts /usr/$command, which is not installed"
    done
fi
echo "$(ls man | wc -l) manual pages, completion ($shells) and schema are those of the program"
