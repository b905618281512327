// Memory of others that is registered with the driver when a device first
// copies from or to it: what no device copies is not locked.
#ifndef AGG_WORKER_CLIENT_LAZY_REGISTRATION_H_
#define AGG_WORKER_CLIENT_LAZY_REGISTRATION_H_

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "kernels/device_memory/registered_memory.h"
#include "server/base/mutex.h"
#include "worker_client/tensor_devices.h"

namespace agg {

// The registration of one mapping, which outlives this. Thread-safe.
class LazyRegistration {
 public:
  LazyRegistration(void* data, int64_t num_bytes,
                   RegisteredMemory::Access access)
      : data_(data), num_bytes_(num_bytes), access_(access) {}

  // Whether devices copy from and to it by themselves. The first call decides
  // it, and takes as long as RegisteredMemory::Register. REQUIRES: devices has
  // met the device.
  bool IsRegistered(int device, TensorDevices* devices) {
    MutexLock lock(&mutex_);
    if (!tried_)
      memory_ = devices->Register(device, data_, num_bytes_, access_);
    tried_ = true;
    return memory_ != nullptr;
  }

 private:
  void* const data_;
  const int64_t num_bytes_;
  const RegisteredMemory::Access access_;
  Mutex mutex_;
  bool tried_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<RegisteredMemory> memory_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_LAZY_REGISTRATION_H_
