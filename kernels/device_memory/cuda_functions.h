// The CUDA driver's functions that the project uses, declared by hand as
// cuda_abi.h is. The driver keeps a function as it is for as long as it has its
// name.
#ifndef AGG_KERNELS_DEVICE_MEMORY_CUDA_FUNCTIONS_H_
#define AGG_KERNELS_DEVICE_MEMORY_CUDA_FUNCTIONS_H_

#include <cstddef>

#include "kernels/device_memory/cuda_abi.h"

// LINE(name of the driver's symbol, its parameters). All return a CUresult.
#define AGG_CUDA_FUNCTIONS(LINE)                                               \
  LINE(cuGetErrorName, (int error, const char** name))                         \
  LINE(cuInit, (unsigned flags))                                               \
  LINE(cuDeviceGetCount, (int* count))                                         \
  LINE(cuDeviceGet, (int* device, int ordinal))                                \
  LINE(cuDeviceGetAttribute, (int* value, int attribute, int device))          \
  LINE(cuDeviceCanAccessPeer, (int* can, int device, int peer))                \
  LINE(cuDevicePrimaryCtxGetState, (int device, unsigned* flags, int* active)) \
  LINE(cuDevicePrimaryCtxRetain, (Context * context, int device))              \
  LINE(cuDevicePrimaryCtxRelease_v2, (int device))                             \
  LINE(cuCtxPushCurrent_v2, (Context context))                                 \
  LINE(cuCtxPopCurrent_v2, (Context * context))                                \
  LINE(cuThreadExchangeStreamCaptureMode, (int* mode))                         \
  LINE(cuPointerGetAttribute, (void* data, int attribute, Pointer pointer))    \
  LINE(cuMemGetAllocationGranularity,                                          \
       (size_t * granularity, const AllocationProp* prop, int option))         \
  LINE(cuMemCreate, (Handle * handle, size_t size, const AllocationProp* prop, \
                     unsigned long long flags))                                \
  LINE(cuMemRelease, (Handle handle))                                          \
  LINE(cuMemAddressReserve, (Pointer * pointer, size_t size, size_t alignment, \
                             Pointer address, unsigned long long flags))       \
  LINE(cuMemAddressFree, (Pointer pointer, size_t size))                       \
  LINE(cuMemMap, (Pointer pointer, size_t size, size_t offset, Handle handle,  \
                  unsigned long long flags))                                   \
  LINE(cuMemUnmap, (Pointer pointer, size_t size))                             \
  LINE(cuMemSetAccess,                                                         \
       (Pointer pointer, size_t size, const AccessDesc* access, size_t count)) \
  LINE(cuMemExportToShareableHandle,                                           \
       (void* shareable, Handle handle, int type, unsigned long long flags))   \
  LINE(cuMemImportFromShareableHandle,                                         \
       (Handle * handle, void* os_handle, int type))                           \
  LINE(cuMemcpyAsync, (Pointer to, Pointer from, size_t size, Stream stream))  \
  LINE(cuMemcpyDtoHAsync_v2,                                                   \
       (void* to, Pointer from, size_t size, Stream stream))                   \
  LINE(cuMemcpyHtoDAsync_v2,                                                   \
       (Pointer to, const void* from, size_t size, Stream stream))             \
  LINE(cuMemAllocHost_v2, (void** memory, size_t size))                        \
  LINE(cuMemFreeHost, (void* memory))                                          \
  LINE(cuMemHostRegister_v2, (void* memory, size_t size, unsigned flags))      \
  LINE(cuMemHostUnregister, (void* memory))                                    \
  LINE(cuStreamCreate, (Stream * stream, unsigned flags))                      \
  LINE(cuStreamDestroy_v2, (Stream stream))                                    \
  LINE(cuStreamSynchronize, (Stream stream))                                   \
  LINE(cuEventCreate, (Event * event, unsigned flags))                         \
  LINE(cuEventRecord, (Event event, Stream stream))                            \
  LINE(cuEventQuery, (Event event))                                            \
  LINE(cuEventSynchronize, (Event event))                                      \
  LINE(cuEventDestroy_v2, (Event event))

namespace agg::cuda_abi {

// Either of cuDeviceGetUuid_v2, which tells parts of a device (MIG) from each
// other, and cuDeviceGetUuid, of drivers before 11.4.
using UuidFunction = int(Uuid* uuid, int device);

// Where the driver has them.
struct Functions {
#define AGG_CUDA_MEMBER(name, parameters) int(*name) parameters = nullptr;
  AGG_CUDA_FUNCTIONS(AGG_CUDA_MEMBER)
#undef AGG_CUDA_MEMBER
  UuidFunction* get_uuid = nullptr;
};

}  // namespace agg::cuda_abi

#endif  // AGG_KERNELS_DEVICE_MEMORY_CUDA_FUNCTIONS_H_
