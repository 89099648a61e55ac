// Stands in for the driver's library in the tests: FAKE_GPUS devices. As the real one since driver 580 it leaves a
// thread behind that blocks no signal. FAKE_DRIVER is "hangs" or "crashes" for a broken one.
#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

unsigned number_of(void* device) {
  return static_cast<unsigned>(reinterpret_cast<unsigned long>(device) - 1);
}
bool is_hot(void* device) {
  const char* hot = std::getenv("FAKE_HOT_GPU");
  return hot != nullptr && static_cast<unsigned>(std::atoi(hot)) == number_of(device);
}

}  // namespace

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

// GPU n works n times 10 % of the time, uses n + 1 GB, and the one that FAKE_HOT_GPU names is too hot.
int nvmlDeviceGetUtilizationRates(void* device, unsigned* rates) {
  rates[0] = 10 * number_of(device);
  rates[1] = 0;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  memory[0] = 80'000'000'000;
  memory[2] = (number_of(device) + 1) * 1'000'000'000ULL;
  memory[1] = memory[0] - memory[2];
  return 0;
}
int nvmlDeviceGetClockInfo(void* device, unsigned /*type*/, unsigned* megahertz) {
  *megahertz = is_hot(device) ? 900 : 1700;
  return 0;
}
int nvmlDeviceGetTemperature(void* device, unsigned /*sensor*/, unsigned* celsius) {
  *celsius = is_hot(device) ? 92 : 60;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  *reasons = is_hot(device) ? 0x40 : 0;
  return 0;
}

int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  std::snprintf(uuid, length, "GPU-%04lu-fake", reinterpret_cast<unsigned long>(device) - 1);
  return 0;
}
}
