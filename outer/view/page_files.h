/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PAGE_FILES_H
#define PAGE_FILES_H
/* The files of outer/view/page as bytes; CMake writes page_files.c. */
#include <stddef.h>

extern const unsigned char page_html[], page_css[], page_js[];
extern const size_t page_html_size, page_css_size, page_js_size;

#endif
