#include "outer/report/plot.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Steps of 1, 2, 2.5 or 5 times a power of ten, about `ticks` of them, around [lo, hi]. */
static struct plot_axis axis_make(double lo, double hi, int ticks)
{
    if (!(hi > lo))
        hi = lo + (fabs(lo) > 0 ? fabs(lo) * 0.1 : 1);
    double raw = (hi - lo) / ticks, power = pow(10, floor(log10(raw))), r = raw / power;
    double step = power * (r <= 1 ? 1 : r <= 2 ? 2 : r <= 2.5 ? 2.5 : r <= 5 ? 5 : 10);
    return (struct plot_axis){floor(lo / step + 1e-9) * step, ceil(hi / step - 1e-9) * step, step};
}

void plot_escape(FILE *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '<')
            fputs("&lt;", out);
        else if (c == '>')
            fputs("&gt;", out);
        else if (c == '&')
            fputs("&amp;", out);
        else if (c == '"')
            fputs("&quot;", out);
        else if (c >= 32 || c == '\n' || c == '\t')
            fputc(c, out);
        else
            fputs("&#65533;", out);
    }
}

static double px(const struct plot *p, double x)
{
    return p->left + (x - p->x.lo) / (p->x.hi - p->x.lo) * (p->width - p->left - p->right);
}

static double py(const struct plot *p, double y)
{
    return p->height - p->bottom -
           (y - p->y.lo) / (p->y.hi - p->y.lo) * (p->height - p->top - p->bottom);
}

/* Digits after the point that a multiple of step needs. */
static int decimals(double step)
{
    int d = 0;
    while (d < 6 && fabs(step - round(step)) > 1e-6 * step) {
        step *= 10;
        d++;
    }
    return d;
}

enum { TICK_MAX = 32 };

static int tick_format(char text[TICK_MAX], double value, double step)
{
    if (step >= 1e6)
        return snprintf(text, TICK_MAX, "%gM", value / 1e6);
    if (step >= 1000)
        return snprintf(text, TICK_MAX, value == 0 ? "0" : "%gk", value / 1000);
    return snprintf(text, TICK_MAX, "%.*f", decimals(step), fabs(value) < step * 1e-6 ? 0 : value);
}

static void tick_text(FILE *out, double value, double step)
{
    char text[TICK_MAX];
    tick_format(text, value, step);
    fputs(text, out);
}

/* Room for the longest label of an axis: a digit of 12 px is 7 px wide. */
static double labels_width(const struct plot_axis *y)
{
    enum { GAP = 12, DIGIT = 7 };
    char text[TICK_MAX];
    int longest = 0;
    for (int i = 0; y->lo + i * y->step <= y->hi + y->step * 0.01; i++) {
        int n = tick_format(text, y->lo + i * y->step, y->step);
        longest = n > longest ? n : longest;
    }
    return fmax(48, GAP + DIGIT * longest);
}

static void draw_axes(struct plot *p, const struct plot_options *o)
{
    for (int i = 0; p->y.lo + i * p->y.step <= p->y.hi + p->y.step * 0.01; i++) {
        double value = p->y.lo + i * p->y.step, y = py(p, value);
        fprintf(p->out, "<line class=\"%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>",
                i == 0 ? "axis" : "grid", p->left, p->width - p->right, y, y);
        fprintf(p->out, "<text class=\"tick\" text-anchor=\"end\" x=\"%.1f\" y=\"%.1f\">",
                p->left - 8, y + 4);
        tick_text(p->out, value, p->y.step);
        fputs("</text>", p->out);
    }
    struct plot_axis nice = axis_make(p->x.lo, p->x.hi, 6);
    double step = !o->bars        ? nice.step
                  : nice.step < 1 ? 1
                  : nice.step < 3 ? 2
                                  : nice.step; /* bars count: no halves */
    for (double value = ceil(p->x.lo / step - 1e-9) * step; value <= p->x.hi + step * 1e-6;
         value += step) {
        if (!o->bars)
            fprintf(p->out,
                    "<line class=\"tickmark\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>",
                    px(p, value), px(p, value), p->height - p->bottom, p->height - p->bottom + 4);
        fprintf(p->out, "<text class=\"tick\" text-anchor=\"middle\" x=\"%.1f\" y=\"%.1f\">",
                px(p, value), p->height - p->bottom + 18);
        tick_text(p->out, value, step);
        fputs("</text>", p->out);
    }
    fprintf(p->out, "<text class=\"label\" x=\"0\" y=\"12\">%s</text>", o->y_label);
    fprintf(p->out, "<text class=\"label\" text-anchor=\"end\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
            p->width - p->right, p->height - 5, o->x_label);
}

void plot_begin(struct plot *p, FILE *out, const struct plot_options *o)
{
    static unsigned charts; /* of this process: ids on one page differ */
    *p = (struct plot){.out = out,
                       .width = 560,
                       .height = 300,
                       .right = o->tags ? 112 : 10,
                       .top = 26,
                       .bottom = 38,
                       .id = charts++};
    p->y = axis_make(o->y_lo, o->y_hi, 5);
    p->left = labels_width(&p->y);
    p->x = (struct plot_axis){o->x_lo, o->x_hi > o->x_lo ? o->x_hi : o->x_lo + 1, 0};
    fprintf(out, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\"><title>", p->width, p->height);
    plot_escape(out, o->title);
    fprintf(out,
            "</title><clipPath id=\"clip%u\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
            "height=\"%.1f\"/></clipPath>\n",
            p->id, p->left - 4, p->top - 4, p->width - p->left - p->right + 8,
            p->height - p->top - p->bottom + 8);
    draw_axes(p, o);
}

void plot_line(struct plot *p, unsigned color, bool faint, const double *x, const double *y,
               size_t n)
{
    bool down = false;
    fprintf(p->out,
            "<path class=\"%s\" style=\"stroke:var(--s%u)\" clip-path=\"url(#clip%u)\" d=\"",
            faint ? "raw" : "line", color % PLOT_COLORS, p->id);
    for (size_t i = 0; i < n; i++) {
        bool good = isfinite(x[i]) && isfinite(y[i]);
        if (good)
            fprintf(p->out, "%s%.1f %.1f", down ? "L" : "M", px(p, x[i]), py(p, y[i]));
        down = good;
    }
    fputs("\"/>\n", p->out);
}

void plot_dots(struct plot *p, unsigned color, const double *x, const double *y, size_t n,
               const char *what)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i]) || !isfinite(y[i]))
            continue;
        fprintf(p->out,
                "<circle r=\"3.2\" class=\"dot\" clip-path=\"url(#clip%u)\" "
                "style=\"fill:var(--s%u)\" cx=\"%.1f\" cy=\"%.1f\"><title>",
                p->id, color % PLOT_COLORS, px(p, x[i]), py(p, y[i]));
        plot_escape(p->out, what);
        fprintf(p->out, " %.4f at %g</title></circle>\n", y[i], x[i]);
    }
}

void plot_tag(struct plot *p, unsigned color, double y, const char *text)
{
    if (p->tag_count == PLOT_TAGS_MAX || !isfinite(y))
        return;
    struct plot_tag *t = &p->tags[p->tag_count++];
    *t = (struct plot_tag){.y = py(p, y), .color = color};
    snprintf(t->text, sizeof t->text, "%s", text);
}

void plot_bar(struct plot *p, const struct plot_bar *b)
{
    const double thinnest = 1.2; /* one bar among thousands is still to be seen */
    double top = py(p, b->hi), tall = py(p, b->lo) - top, left = px(p, b->x - b->half);
    double wide = fmax(thinnest, px(p, b->x + b->half) - left);
    if (!(tall > 0.05))
        return;
    fprintf(p->out,
            "<rect style=\"fill:%s\" fill-opacity=\"%.2f\" x=\"%.2f\" y=\"%.2f\" "
            "width=\"%.2f\" height=\"%.2f\"><title>",
            b->fill, b->opacity, left, top, wide, tall);
    plot_escape(p->out, b->what);
    fputs("</title></rect>\n", p->out);
}

void plot_mark(struct plot *p, double x, double half, double y)
{
    fprintf(p->out, "<line class=\"mark\" x1=\"%.2f\" x2=\"%.2f\" y1=\"%.2f\" y2=\"%.2f\"/>\n",
            px(p, x - half), px(p, x + half), py(p, y), py(p, y));
}

static int tag_order(const void *a, const void *b)
{
    double x = ((const struct plot_tag *)a)->y, y = ((const struct plot_tag *)b)->y;
    return (x > y) - (x < y);
}

void plot_end(struct plot *p)
{
    enum { LINE_HEIGHT = 14, LETTER = 7 };
    qsort(p->tags, p->tag_count, sizeof *p->tags, tag_order);
    for (unsigned i = 1; i < p->tag_count;
         i++) /* names never overlap: push down, then up from the bottom */
        if (p->tags[i].y < p->tags[i - 1].y + LINE_HEIGHT)
            p->tags[i].y = p->tags[i - 1].y + LINE_HEIGHT;
    double limit = p->height - p->bottom;
    for (unsigned i = p->tag_count; i-- > 0; limit = p->tags[i].y - LINE_HEIGHT)
        if (p->tags[i].y > limit)
            p->tags[i].y = limit;
    for (unsigned i = 0; i < p->tag_count; i++) {
        fprintf(p->out, "<text class=\"tag\" style=\"fill:var(--s%u)\" x=\"%.1f\" y=\"%.1f\"",
                p->tags[i].color % PLOT_COLORS, p->width - p->right + 8, p->tags[i].y + 4);
        double room = p->right - 10;
        if (LETTER * (double)strlen(p->tags[i].text) > room) /* narrower, not cut */
            fprintf(p->out, " textLength=\"%.0f\" lengthAdjust=\"spacingAndGlyphs\"", room);
        fputs(">", p->out);
        plot_escape(p->out, p->tags[i].text);
        fputs("</text>\n", p->out);
    }
    fputs("</svg>\n", p->out);
}
