/* SPDX-License-Identifier: Apache-2.0 */
#include "outer/record/health.h"
#include <math.h>
#include <sys/statvfs.h>
#include <sys/timex.h>

bool health_due(double *last_s, double now_s)
{
    bool due = *last_s == 0 || now_s - *last_s >= HEALTH_EVERY_S;
    if (due)
        *last_s = now_s;
    return due;
}

/* What the kernel says of its clock; NaN where it may not be asked. */
static void clock_record(struct jsonl *r)
{
    struct timex x = {0};
    bool told = adjtimex(&x) != -1;
    double unit = x.status & STA_NANO ? 1e-9 : 1e-6;
    jsonl_real(r, "clock_offset_s", told ? unit * (double)x.offset : NAN);
    jsonl_real(r, "clock_error_s", told ? 1e-6 * (double)x.maxerror : NAN);
}

void health_record(struct jsonl *r, const struct health *h)
{
    struct statvfs st;
    bool told = statvfs(h->dir, &st) == 0;
    jsonl_begin(r, "health");
    jsonl_real(r, "certificate_days", h->certificate_days);
    jsonl_real(r, "disk_free_bytes", told ? (double)st.f_bavail * (double)st.f_frsize : NAN);
    clock_record(r);
    if (h->term)
        jsonl_int(r, "epoch", (int64_t)h->term);
    else
        jsonl_real(r, "clock_aggregator_s", h->clock_s);
    jsonl_end(r);
}
