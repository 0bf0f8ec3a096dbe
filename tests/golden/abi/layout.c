/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of atoll.h's structs, a line each member: what a compiled program relies on. A member
 * may be added at the end of a struct that begins with its size; no line here may change.
 * tests/e2e/library.sh compares it with layout.txt. */
#include <atoll.h>
#include <stdio.h>

#define MEMBER(type, name)                                                                         \
    printf("%s %zu %zu\n", #type "." #name, offsetof(struct type, name),                           \
           sizeof((struct type *)0)->name)

int main(void)
{
    MEMBER(atoll_tensor, name);
    MEMBER(atoll_tensor, dims);
    MEMBER(atoll_tensor, dtype);
    MEMBER(atoll_tensor, shape);
    MEMBER(atoll_tensor, data);
    MEMBER(atoll_options, size);
    MEMBER(atoll_options, config);
    MEMBER(atoll_options, config_text);
    MEMBER(atoll_options, settings);
    MEMBER(atoll_options, setting_count);
    MEMBER(atoll_options, tensors);
    MEMBER(atoll_options, tensor_count);
    MEMBER(atoll_options, read);
    MEMBER(atoll_options, write);
    MEMBER(atoll_options, rank);
    MEMBER(atoll_options, ranks);
    MEMBER(atoll_options, broadcast);
    MEMBER(atoll_options, log);
    MEMBER(atoll_options, self);
    MEMBER(atoll_report, size);
    MEMBER(atoll_report, loss);
    MEMBER(atoll_report, tokens_per_second);
    MEMBER(atoll_status, size);
    MEMBER(atoll_status, step);
    MEMBER(atoll_status, steps);
    MEMBER(atoll_status, rounds);
    MEMBER(atoll_status, rounds_all);
    MEMBER(atoll_status, up_bytes);
    MEMBER(atoll_status, down_bytes);
    MEMBER(atoll_status, waited_s);
    MEMBER(atoll_status, flight_s);
    MEMBER(atoll_status, included);
    MEMBER(atoll_status, sites);
    MEMBER(atoll_place, name);
    MEMBER(atoll_place, first);
    MEMBER(atoll_place, rows);
    MEMBER(atoll_place, transposed);
    printf("sizes of arrays' elements: %zu %zu\n", sizeof(struct atoll_tensor),
           sizeof(struct atoll_place));
    return 0;
}
