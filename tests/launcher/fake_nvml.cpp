// Stands in for the driver's library in the tests: FAKE_GPUS devices.
#include <cstdio>
#include <cstdlib>

extern "C" {

int nvmlInit_v2() {
  return 0;
}
int nvmlShutdown() {
  return 0;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(std::atoi(std::getenv("FAKE_GPUS")));
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<unsigned long>(index) + 1);
  return 0;
}

int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  std::snprintf(version, length, "999.1");
  return 0;
}

int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  std::snprintf(uuid, length, "GPU-%04lu-fake", reinterpret_cast<unsigned long>(device) - 1);
  return 0;
}
}
