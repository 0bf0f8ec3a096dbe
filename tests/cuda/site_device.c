#include "tests/outer/site_device.h"
#include "tests/cuda/cuda_test.h"

enum err site_device_open(struct dev **d)
{
    return cuda_test_open(d, "f32");
}
