#include "tests/outer/site_device.h"

enum err site_device_open(struct dev **d)
{
    return dev_open(d, &(struct dev_options){.kind = "cpu", .model_type = "f32", .threads = 1});
}
