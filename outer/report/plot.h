#ifndef PLOT_H
#define PLOT_H
/* Charts as inline SVG, for the report: axes with round tick values, lines with their names at
 * their ends, stacked bars. No script, no font, nothing fetched. Colours come from the page's CSS
 * variables (--s0 .. --s7 for sites, --p0 .. for parts of a round), so that light and dark both
 * work. Writes to a FILE; errors are the caller's to find (ferror).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { PLOT_COLORS = 8, PLOT_TAGS_MAX = 16 };

struct plot_axis {
    double lo, hi, step; /* lo and hi are multiples of step */
};
struct plot_tag { /* a line's name beside its last point */
    double y;
    unsigned color;
    char text[48];
};
struct plot {
    FILE *out;
    double width, height, left, right, top, bottom; /* user units; margins */
    struct plot_axis x, y;
    unsigned id; /* of this chart on the page: for its clip path */
    struct plot_tag tags[PLOT_TAGS_MAX];
    unsigned tag_count;
};
struct plot_options {
    const char *title; /* for screen readers; the page prints its own heading */
    const char *x_label, *y_label;
    double x_lo, x_hi, y_lo, y_hi;
    bool bars; /* x counts bars: no gridlines upright, ticks under bar centres */
    bool tags; /* leaves room on the right for names */
};

void plot_begin(struct plot *p, FILE *out, const struct plot_options *o);
/* faint: the raw values behind a smoothed line. Points that are not finite leave a gap. */
void plot_line(struct plot *p, unsigned color, bool faint, const double *x, const double *y,
               size_t n);
void plot_dots(struct plot *p, unsigned color, const double *x, const double *y, size_t n,
               const char *what);
void plot_tag(struct plot *p, unsigned color, double y, const char *text);
struct plot_bar {     /* a part of a bar that spans x - half .. x + half */
    const char *fill; /* a CSS colour: "var(--p0)" */
    double opacity, x, half, lo, hi;
    const char *what; /* hover text */
};
void plot_bar(struct plot *p, const struct plot_bar *b);
void plot_mark(struct plot *p, double x, double half,
               double y); /* a short level line: the predicted value */
void plot_end(struct plot *p);
void plot_escape(FILE *out, const char *text); /* HTML text */

#endif
