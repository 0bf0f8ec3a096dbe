/* SPDX-License-Identifier: Apache-2.0 */
/* atoll relay: a hub for sites that cannot reach the aggregator. */
#include "kernels/base/args.h"
#include "outer/cmd/cmd.h"
#include "outer/link/hub.h"

enum err cmd_relay(int argc, char **argv, struct arena *arena)
{
    struct hub_options o = {.connections = 1024, .of_source = 256, .idle_s = 300};
    const struct args_option options[] = {
        {"listen", ARGS_TEXT, &o.listen, .value = "ADDRESS:PORT", .required = true,
         .help = "Where sites connect: their site.aggregator."},
        {"to", ARGS_TEXT, &o.to, .value = "HOST:PORT", .required = true,
         .help = "The aggregator, or the next relay."},
        {"name", ARGS_TEXT, &o.names, .value = "NAME,NAME",
         .help = "Names of the aggregator's certificate: connections that ask for another server "
                 "are refused. "
                 "Without it, HOST."},
        {"allow", ARGS_TEXT, &o.allow, .value = "CIDR,CIDR",
         .help = "Networks that may connect, such as 10.0.0.0/8; without it, all."},
        {"connections", ARGS_INT, &o.connections, .min = 1, .max = 100000, .value = "N",
         .help = "Most connections at a time. A site has at most 17 (site.streams auto)."},
        {"source-connections", ARGS_INT, &o.of_source, .min = 1, .max = 100000, .value = "N",
         .help = "Most of them from one address."},
        {"idle-s", ARGS_REAL, &o.idle_s, .min = 1, .max = 86400, .value = "S",
         .help = "A connection without a byte for so long ends. Sites ping every 20 s."},
        {"proxy", ARGS_TEXT, &o.proxy_url, .value = "URL",
         .help = "Proxy from here to the aggregator, as site.proxy."},
        {"proxy-credentials", ARGS_TEXT, &o.credentials, .value = "FILE",
         .help = "Its user and password, as site.proxy_credentials."},
    };
    struct args args = {
        .command = "relay",
        .summary =
            "Forwards the TLS connections of sites to an aggregator that they cannot reach by "
            "themselves: compute nodes without internet, sites of a hub. It holds no key and "
            "opens "
            "nothing. What is no TLS 1.3 for the aggregator's name is refused. It keeps no state: "
            "killing it costs its sites a reconnection.",
        .example =
            "atoll relay --listen 10.0.0.1:7443 --to hub.example.org:7443 --allow 10.0.0.0/8",
        ARGS_OPTIONS(options)};
    TRY(args_parse(&args, argc, argv, arena));
    return args.help ? ERR_OK : hub_run(&o, arena);
}
