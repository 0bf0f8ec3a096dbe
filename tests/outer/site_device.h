#ifndef SITE_DEVICE_H
#define SITE_DEVICE_H
/* Which device does a site's outer arithmetic in a test that is linked twice: this host
 * (site_device.c), or the GPU's kernels emulated on it (tests/cuda/site_device.c).
 */
#include "kernels/dev.h"

enum err site_device_open(struct dev **d) MUST;

#endif
