// clang-format off
#include "tests/kernels/cuda/emulator/device_ops.h"
#include "tests/bench/device_peaks.cu"
