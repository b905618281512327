// Stands in for NVML, where there is no GPU: one device, that of the emulator,
// whose clock rises with each question.
#include <cstring>

namespace {

constexpr int kSuccess = 0;
constexpr int kNotFound = 6;
constexpr int kInvalidArgument = 2;
constexpr int kClockOfSms = 1;
constexpr unsigned kFirstMhz = 1000;

bool started = false;
int the_device = 0;
unsigned mhz = kFirstMhz;

}  // namespace

extern "C" {

int nvmlInit_v2() {
  started = true;
  return kSuccess;
}

int nvmlShutdown() {
  started = false;
  return kSuccess;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* pci_bus_id, void** device) {
  if (!started || std::strcmp(pci_bus_id, "0000:1A:00.0") != 0) {
    return kNotFound;
  }
  *device = &the_device;
  return kSuccess;
}

int nvmlDeviceGetClockInfo(void* device, int type, unsigned* value) {
  if (!started || device != &the_device || type != kClockOfSms) {
    return kInvalidArgument;
  }
  *value = mhz++;
  return kSuccess;
}

}  // extern "C"
