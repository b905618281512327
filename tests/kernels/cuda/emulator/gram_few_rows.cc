// clang-format off
#include "tests/kernels/cuda/emulator/device_ops.h"
#include "kernels/cuda/gram_few_rows.cu"
