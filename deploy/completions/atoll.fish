# Completion of atoll in fish. The words come from the program: atoll ... --help=words, atoll train --help-keys --format words.
function __atoll_words
    set -l typed (commandline -opc)
    set -l command
    for w in $typed[2..]
        string match -q -- '-*' $w; and break
        set -a command $w
    end
    if string match -q -- '--*.*' (commandline -ct)
        $typed[1] train --help-keys --format words 2>/dev/null </dev/null
    else
        $typed[1] $command --help=words 2>/dev/null </dev/null
    end
end
complete -c atoll -a '(__atoll_words)'
