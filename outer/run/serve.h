/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SERVE_H
#define SERVE_H
/* The process of `atoll serve`, from its configuration to its end. */
#include "kernels/base/args.h"

struct serve_options {
    const char *config;
    const char *command; /* the command line, for the record */
    const char *rebuild; /* directories of sites, DIR,DIR; NULL: none */
    bool from_sites;     /* serve.dir is rebuilt from what the running sites send */
};
enum err serve_run(const struct serve_options *o, const struct args *args) MUST;

#endif
