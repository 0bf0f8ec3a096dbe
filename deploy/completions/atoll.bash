# Completion of atoll in bash. The words come from the program: atoll ... --help=words, atoll train --help-keys --format words.
_atoll() {
    local word=${COMP_WORDS[COMP_CWORD]} program=${COMP_WORDS[0]} command=() w rows
    local IFS=$' \t\n'
    for w in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case $w in -*) break ;; *) command+=("$w") ;; esac
    done
    rows=$("$program" "${command[@]:0:3}" --help=words 2>/dev/null </dev/null | cut -f 1)
    case $word in
    --*.*) rows=$("$program" train --help-keys --format words 2>/dev/null </dev/null | cut -f 1) ;;
    -*) ;;
    *) rows=$(printf '%s\n' "$rows" | grep -v '^-') ;;
    esac
    mapfile -t COMPREPLY < <(IFS=$'\n' compgen -W "$rows" -- "$word")
    [[ ${COMPREPLY[0]:-} != *= ]] || compopt -o nospace
    [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default
}
complete -F _atoll atoll
