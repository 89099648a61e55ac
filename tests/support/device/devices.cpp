#include "tests/support/device/devices.h"

#include <algorithm>
#include <cstdlib>

#include "tests/support/device/caller.h"
#include "tests/support/device/guard.h"
#include "tests/support/device/host_memory.h"
#include "tests/support/device/kernel_thread.h"

namespace ddp::test::device {
namespace {

constexpr size_t kBytesEach = size_t{4} << 30;  // addresses: only what is used takes memory
constexpr int kUsualCount = 4;

int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

c10::DeviceType type_from_environment() {
  const char* text = std::getenv("DDPRUN_TEST_DEVICE_TYPE");
  return text != nullptr && std::string(text) == "privateuseone" ? c10::kPrivateUse1 : c10::kCUDA;
}

std::string describe(const void* shown) {
  return devices().allocator.describe(shown);
}

// Which no wait of the host has thrown: a GPU's error ends the program later, or is never heard of.
void note_failed_kernel(int device) {
  const std::exception_ptr error = devices().engine.take_error(device);
  if (!error) return;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    devices().ledger.fault("of device " + std::to_string(device) + " nobody has heard: " + caught.what());
  }
}

}  // namespace

Devices::Devices()
    : type(type_from_environment()),
      key(type == c10::kCUDA ? c10::DispatchKey::CUDA : c10::DispatchKey::PrivateUse1),
      count(std::clamp(number_from("DDPRUN_TEST_DEVICES", kUsualCount), 1, kMaxDevices)),
      books([](const void* block) { return static_cast<const Block*>(block)->name() + ", by " + caller(); }),
      memory(count, kBytesEach, &describe),
      engine(count,
             [](const std::function<void()>& body) {
               const KernelThread modes;
               body();
             }),
      allocator(count) {
  engine.set_schedule({.seed = static_cast<uint64_t>(number_from("DDPRUN_TEST_DEVICE_SEED", 0))});
}

Devices& devices() {
  static auto* const the_devices = new Devices();  // tensors may outlive every static object
  return *the_devices;
}

c10::Stream stream_of(StreamKey key) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(devices().type, static_cast<c10::DeviceIndex>(key.device)),
                     key.id);
}

void follow(c10::Stream later, c10::Stream earlier) {
  if (later == earlier) return;
  devices().books.follow(later, earlier);
  devices().engine.wait(key_of(later), devices().engine.record(key_of(earlier)));
}

void wait_for(c10::Stream stream, const std::string& why) {
  devices().ledger.host_waits(why);
  devices().engine.synchronize(devices().engine.record(key_of(stream)));
  devices().books.host_waits_for(stream);
  open_copied();
  if (const auto error = devices().engine.take_error(stream.device_index())) std::rethrow_exception(error);
}

void order(c10::Stream earlier, c10::Stream later) {
  follow(later, earlier);
}

c10::Device device_at(int index) {
  return {devices().type, static_cast<c10::DeviceIndex>(index)};
}

int count() {
  return devices().count;
}

void set_schedule(uint64_t seed) {
  devices().engine.set_schedule({.seed = seed});
}

void run_in_program_order() {
  devices().engine.set_schedule({.in_program_order = true});
}

void drain() {
  for (int index = 0; index < devices().count; ++index) {
    devices().engine.synchronize_device(index);
    note_failed_kernel(index);
  }
  devices().engine.forget_idle_streams();
  open_all();
  devices().books.start_over();
}

std::vector<std::string> faults() {
  std::vector<std::string> all = devices().books.faults();
  for (std::string& fault : devices().ledger.take_faults()) all.push_back(std::move(fault));
  return all;
}

Counts counts() {
  return devices().ledger.counts();
}

void forget_counts() {
  devices().ledger.forget_counts();
}

std::vector<int> touched() {
  return devices().ledger.take_touched();
}

std::vector<std::string> live_memory() {
  return memory_kept_since(0);
}

std::vector<std::string> memory_kept_since(uint64_t number) {
  std::vector<std::string> all = devices().allocator.live(number);
  for (std::string& page : live_pages(number)) all.push_back(std::move(page));
  return all;
}

uint64_t last_allocation() {
  return devices().allocations;
}

}  // namespace ddp::test::device
