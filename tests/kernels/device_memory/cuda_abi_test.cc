// The hand-written declarations of the driver's functions against NVIDIA's.
#include "kernels/device_memory/cuda_abi.h"

#include <cuda.h>

#include <type_traits>

#include "gtest/gtest.h"

namespace agg::cuda_abi {
namespace {

// Whether two types of a parameter are passed in the same way: pointers, or
// integers and enumerations of one size.
template <class Ours, class Theirs>
constexpr bool kSamePassing =
    std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
    sizeof(Ours) == sizeof(Theirs) &&
    (std::is_pointer_v<Ours> ||
     std::is_integral_v<Ours>)&&(std::is_pointer_v<Theirs> ||
                                 std::is_integral_v<Theirs> ||
                                 std::is_enum_v<Theirs>);

template <class Ours, class Theirs>
constexpr bool kSameCall = false;

template <class... Ours, class... Theirs>
constexpr bool kSameCall<int(Ours...), CUresult(Theirs...)> = [] {
  if constexpr (sizeof...(Ours) != sizeof...(Theirs)) {
    return false;
  } else {
    return (kSamePassing<Ours, Theirs> && ...);
  }
}();

static_assert(sizeof(CUresult) == sizeof(int));
#define AGG_CUDA_COMPARE(name, parameters)                   \
  static_assert(kSameCall<int parameters, decltype(::name)>, \
                #name " is not what cuda.h declares");
AGG_CUDA_FUNCTIONS(AGG_CUDA_COMPARE)
#undef AGG_CUDA_COMPARE
// cuda.h calls the second version by the first one's name.
static_assert(kSameCall<UuidFunction, decltype(::cuDeviceGetUuid)>);

// That the comparison can fail.
static_assert(!kSameCall<int(int), decltype(::cuMemRelease)>);
static_assert(!kSameCall<int(Pointer), decltype(::cuMemUnmap)>);
static_assert(!kSameCall<int(Handle), decltype(::cuStreamSynchronize)>);

static_assert(std::is_pointer_v<CUcontext> && std::is_pointer_v<CUstream> &&
              std::is_pointer_v<CUevent>);
static_assert(sizeof(Pointer) == sizeof(CUdeviceptr));
static_assert(sizeof(Handle) == sizeof(CUmemGenericAllocationHandle));
static_assert(sizeof(int) == sizeof(CUdevice));

static_assert(sizeof(Uuid) == sizeof(CUuuid));

static_assert(sizeof(Location) == sizeof(CUmemLocation));
static_assert(offsetof(Location, type) == offsetof(CUmemLocation, type));
static_assert(offsetof(Location, id) == offsetof(CUmemLocation, id));

using Theirs = CUmemAllocationProp;
static_assert(sizeof(AllocationProp) == sizeof(Theirs));
static_assert(alignof(AllocationProp) == alignof(Theirs));
static_assert(offsetof(AllocationProp, type) == offsetof(Theirs, type));
static_assert(offsetof(AllocationProp, requested_handle_types) ==
              offsetof(Theirs, requestedHandleTypes));
static_assert(offsetof(AllocationProp, location) == offsetof(Theirs, location));
static_assert(offsetof(AllocationProp, win32_meta_data) ==
              offsetof(Theirs, win32HandleMetaData));
static_assert(offsetof(AllocationProp, flags) == offsetof(Theirs, allocFlags));
static_assert(sizeof(AllocationProp::flags) == sizeof(Theirs::allocFlags));

static_assert(sizeof(AccessDesc) == sizeof(CUmemAccessDesc));
static_assert(offsetof(AccessDesc, location) ==
              offsetof(CUmemAccessDesc, location));
static_assert(offsetof(AccessDesc, flags) == offsetof(CUmemAccessDesc, flags));

static_assert(kSuccess == CUDA_SUCCESS);
static_assert(kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(kNotInitialized == CUDA_ERROR_NOT_INITIALIZED);
static_assert(kInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(kInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(kNotReady == CUDA_ERROR_NOT_READY);
static_assert(kNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(kVirtualMemoryManagementSupported ==
              CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
static_assert(kPosixFileDescriptorSupported ==
              CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
static_assert(kPointerMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(kPointerDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(sizeof(CUmemorytype) == sizeof(unsigned));
static_assert(kMemoryTypeHost == CU_MEMORYTYPE_HOST);
static_assert(kMemoryTypeDevice == CU_MEMORYTYPE_DEVICE);
static_assert(kAllocationTypePinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(kLocationTypeDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(kHandleTypePosixFileDescriptor ==
              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(kGranularityMinimum == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
static_assert(kAccessReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(kRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(kRegisterReadOnly == CU_MEMHOSTREGISTER_READ_ONLY);
static_assert(kCaptureModeThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kEventBlockingSync == CU_EVENT_BLOCKING_SYNC);
static_assert(kEventDisableTiming == CU_EVENT_DISABLE_TIMING);

TEST(CudaAbiTest, IsWhatTheToolkitDeclares) {
  // All of it was compared by the compiler.
  EXPECT_GE(CUDA_VERSION, 11040) << "cuDeviceGetUuid_v2";
}

}  // namespace
}  // namespace agg::cuda_abi
