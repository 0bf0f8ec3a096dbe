/* The report's table of every byte on the link, from each site's ledger. */
#include <inttypes.h>
#include "outer/report/plot.h"
#include "outer/report/report.h"

static void cell(FILE *out, uint64_t bytes)
{
    fprintf(out, "<td class=\"n\">%" PRIu64 "</td>", bytes);
}

static void row(FILE *out, const char *name, const uint64_t cells[4])
{
    fprintf(out, "<tr><th>%s</th>", name);
    for (int i = 0; i < 4; i++)
        if (cells[i] == UINT64_MAX)
            fputs("<td></td>", out);
        else
            cell(out, cells[i]);
    fputs("</tr>\n", out);
}

static double apart(const struct ledger_side *s)
{
    return s->socket ? 100 * ((double)ledger_sum(s) - (double)s->socket) / (double)s->socket : 0;
}

static void write_notes(FILE *out, const struct ledger_member *m)
{
    fprintf(out, "<p class=\"note\">Layers beside the kernel: %+.3f %% up, %+.3f %% down.",
            apart(&m->up.layers), apart(&m->down.layers));
    if (m->up.wrong || m->down.wrong)
        fprintf(out, " <b>%" PRIu64 " transfers are not as predicted: atoll ledger names them.</b>",
                m->up.wrong + m->down.wrong);
    if (m->up.resent || m->down.resent)
        fprintf(out, " Sent again: %" PRIu64 " bytes up, %" PRIu64 " down.", m->up.resent,
                m->down.resent);
    if (m->up.lost || m->down.lost)
        fprintf(out,
                " Sent by processes that were killed before they booked it: %" PRIu64
                " bytes up, %" PRIu64 " down.",
                m->up.lost, m->down.lost);
    fputs("</p>", out);
}

static void write_member(FILE *out, const struct ledger_member *m)
{
    const struct ledger_side *u = &m->up.layers, *d = &m->down.layers;
    const uint64_t none = UINT64_MAX;
    fputs("<div class=\"wide\"><table><tr><th>bytes</th><th class=\"n\">up, predicted</th><th "
          "class=\"n\">counted</th>"
          "<th class=\"n\">down, predicted</th><th class=\"n\">counted</th></tr>\n",
          out);
    row(out, "payload",
        (const uint64_t[]){m->up.predicted, u->payload, m->down.predicted, d->payload});
    row(out, "protobuf and gRPC", (const uint64_t[]){none, u->grpc, none, d->grpc});
    row(out, "HTTP/2 frames (model)", (const uint64_t[]){none, u->http2, none, d->http2});
    row(out, "TLS records (model)", (const uint64_t[]){none, u->tls, none, d->tls});
    row(out, "all layers", (const uint64_t[]){none, ledger_sum(u), none, ledger_sum(d)});
    row(out, "kernel&#39;s sockets", (const uint64_t[]){none, u->socket, none, d->socket});
    fputs("</table></div>\n", out);
    write_notes(out, m);
}

void report_ledger(FILE *out, const struct report_run *runs, size_t count)
{
    bool any = false;
    for (size_t i = 0; i < count; i++)
        any = any || !runs[i].alone;
    if (!any)
        return;
    fputs("<section><h2>Every byte on the link</h2><p class=\"note\">Payload as predicted from the "
          "configuration and as "
          "counted, everything around it, and what the kernel says that its sockets "
          "carried.</p><div class=\"grid2\">\n",
          out);
    for (size_t i = 0; i < count; i++) {
        if (runs[i].alone)
            continue;
        fputs("<div><h2>", out);
        plot_escape(out, runs[i].name);
        fputs("</h2>", out);
        if (runs[i].ledger.lives) {
            write_member(out, &runs[i].ledger);
        } else {
            fputs("<p class=\"soft\">", out);
            plot_escape(out, runs[i].ledger_why);
            fputs("</p>", out);
        }
        fputs("</div>\n", out);
    }
    fputs("</div></section>\n", out);
}
