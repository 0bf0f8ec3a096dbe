#include "outer/run/stop_signals.h"

void stop_signals(sigset_t *s)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1};
    struct sigaction hangup;
    sigemptyset(s);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(s, numbers[i]);
    if (sigaction(SIGHUP, NULL, &hangup) != 0 || hangup.sa_handler != SIG_IGN)
        sigaddset(s, SIGHUP);
}
