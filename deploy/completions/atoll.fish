# Completion of atoll in fish. The words come from the program: atoll ... --help=words, atoll train --help-keys --format words.
function __atoll_words
    set -l command
    for w in (commandline -opc)[2..]
        string match -q -- '-*' $w; and break
        set -a command $w
    end
    if string match -q -- '--*.*' (commandline -ct)
        atoll train --help-keys --format words 2>/dev/null </dev/null
    else
        atoll $command --help=words 2>/dev/null </dev/null
    end
end
complete -c atoll -a '(__atoll_words)'
