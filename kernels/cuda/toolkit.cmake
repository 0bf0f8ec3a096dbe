# What -DCUDA=ON looks for; read by the top CMakeLists.txt. -DCUDA_ARCHITECTURES=90a-real builds for one chip only: a
# third of the time.
enable_language(CXX) # tests run the kernels on the host: tests/cuda
set(CUDA_ARCHITECTURES "80-real;90a-real;100" CACHE STRING "as CMAKE_CUDA_ARCHITECTURES takes them")
set(CMAKE_CUDA_ARCHITECTURES "${CUDA_ARCHITECTURES}")
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "CUDA: no nvcc found; put it on the PATH, or configure with -DCUDA=OFF")
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

# NCCL is optional on top: without it a site has one GPU.
find_library(NCCL nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
