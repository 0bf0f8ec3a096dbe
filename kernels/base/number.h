/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NUMBER_H
#define NUMBER_H
/* The one reader of decimal numbers that a person writes: configuration, amendments, options,
 * lists. [sign] digits [. digits] [e [sign] digits], with nothing before or after; narrower than
 * strtod, which takes inf, nan, hexadecimal, blanks, and returns 0 for 1e-400. Values are kept in
 * single precision here and there, so a value that is neither 0 nor a normal float is out of range
 * as well. Pure.
 */
#include <stdbool.h>
#include <stdint.h>

enum number_kind {
    NUMBER_NONE,         /* no number */
    NUMBER_OUT_OF_RANGE, /* its size is below 1.2e-38 and it is not 0, or no double holds it */
    NUMBER_REAL,
    NUMBER_WHOLE, /* digits alone, with a sign or without */
};

/* *out: the value, for the last two; -0 becomes 0. */
enum number_kind number_read(const char *text, double *out);
/* A whole number, which 1e3 is too; digits alone saturate at the limits of int64_t. */
bool number_read_whole(const char *text, int64_t *out);
/* A number that is not out of range. */
bool number_good(const char *text, double *out);

#endif
