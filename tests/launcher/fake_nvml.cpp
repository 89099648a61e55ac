// Stands in for the driver's library in the tests: FAKE_GPUS devices. As the real one since driver 580 it leaves a
// thread behind that blocks no signal. FAKE_DRIVER is "hangs" or "crashes" for a broken one.
#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {

int nvmlInit_v2() {
  const char* manner = std::getenv("FAKE_DRIVER");
  if (manner != nullptr && std::strcmp(manner, "hangs") == 0) ::poll(nullptr, 0, -1);
  if (manner != nullptr && std::strcmp(manner, "crashes") == 0) ::raise(SIGSEGV);
  pthread_t thread{};
  return ::pthread_create(
      &thread, nullptr, [](void*) -> void* { return reinterpret_cast<void*>(::poll(nullptr, 0, -1)); }, nullptr);
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
