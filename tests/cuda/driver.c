/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for the NVIDIA driver, libcuda.so.1, so that cuDNN makes plans where there is no GPU:
 * it writes a kernel's source for the GPU that it is told of, compiles it with NVRTC, and hands the
 * result to the driver, which here takes everything and runs nothing. All that wants a GPU is
 * refused as on a machine without one.
 */
#include <stddef.h>

enum { SUCCESS = 0, NO_DEVICE = 100 };

#define REFUSED(X)                                                                                 \
    X(cuInit)                                                                                      \
    X(cuDriverGetVersion)                                                                          \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuCtxGetCurrent)                                                                             \
    X(cuCtxGetLimit)                                                                               \
    X(cuCtxSetLimit)                                                                               \
    X(cuCtxPopCurrent)                                                                             \
    X(cuCtxPushCurrent)                                                                            \
    X(cuStreamGetCtx)                                                                              \
    X(cuLinkCreate)                                                                                \
    X(cuLinkAddData)                                                                               \
    X(cuLinkComplete)                                                                              \
    X(cuLinkDestroy)                                                                               \
    X(cuLaunchKernel)                                                                              \
    X(cuLaunchKernelEx)                                                                            \
    X(cuLaunchCooperativeKernel)                                                                   \
    X(cuLibraryLoadFromFile)                                                                       \
    X(cuKernelGetFunction)                                                                         \
    X(cuKernelGetAttribute)                                                                        \
    X(cuOccupancyMaxPotentialClusterSize)                                                          \
    X(cuOccupancyMaxActiveClusters)                                                                \
    X(cuTensorMapEncodeTiled)                                                                      \
    X(cuGetProcAddress_v2)                                                                         \
    X(cuGetErrorName)                                                                              \
    X(cuGetErrorString)
#define X(name)                                                                                    \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return NO_DEVICE;                                                                          \
    }
REFUSED(X)
#undef X

static char thing; /* what handles point at */

int cuLibraryLoadData(void **library, const void *code);
int cuLibraryLoadData(void **library, const void *code)
{
    *library = &thing;
    return code ? SUCCESS : NO_DEVICE;
}

int cuLibraryGetKernel(void **kernel);
int cuLibraryGetKernel(void **kernel)
{
    *kernel = &thing;
    return SUCCESS;
}

int cuLibraryUnload(void);
int cuLibraryUnload(void)
{
    return SUCCESS;
}

int cuKernelSetAttribute(void);
int cuKernelSetAttribute(void)
{
    return SUCCESS;
}
