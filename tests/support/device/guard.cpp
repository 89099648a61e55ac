#include "tests/support/device/guard.h"

#include <array>
#include <atomic>
#include <chrono>

#include "tests/support/device/caller.h"
#include "tests/support/device/devices.h"
#include "tests/support/device/host_memory.h"
#include "tests/support/device/mutation.h"

namespace ddp::test::device {
namespace {

// CUDA's pool has so many streams; then they are given out again.
constexpr int64_t kPoolSize = 32;
constexpr int64_t kFirstOfPool = 1;
constexpr int64_t kFirstOfHighPool = kFirstOfPool + kPoolSize;
constexpr int64_t kFirstNewStream = 1000;

struct Event {
  int device = 0;
  PointPtr point{};
};

struct Current {
  c10::DeviceIndex device = 0;
  std::array<c10::StreamId, kMaxDevices> streams{};
};

Current& current() {
  static thread_local Current of_thread;
  return of_thread;
}

c10::StreamId next_of_pool(int device, bool high) {
  static std::array<std::atomic<int64_t>, 2 * kMaxDevices> given{};
  const int64_t number = given.at(static_cast<size_t>(2 * device + (high ? 1 : 0)))++ % kPoolSize;
  return (high ? kFirstOfHighPool : kFirstOfPool) + number;
}

c10::StreamId next_new() {
  static std::atomic<int64_t> last{kFirstNewStream};
  return last++;
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return devices().type; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {devices().type, current().device}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() >= 0 && device.index() < devices().count, "simulated device ", device, ": there are ",
                devices().count);
    current().device = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current().device = device.index(); }
  c10::Stream getStream(c10::Device device) const override {
    const auto index = device.has_index() ? device.index() : current().device;
    return stream(index, current().streams.at(static_cast<size_t>(index)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(device.index(), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high) const override {
    const auto index = device.has_index() ? device.index() : current().device;
    devices().ledger.touch(index);
    return stream(index, next_of_pool(index, high));
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    devices().ledger.touch(device.index());
    return stream(device.index(), next_new());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    current().streams.at(static_cast<size_t>(stream.device_index())) = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(devices().count); }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex device, c10::EventFlag) const override {
    if (device != -1 && device != stream.device_index()) {
      devices().ledger.wrong_device("an event of device " + std::to_string(device) +
                                    " was recorded on a stream of device " + std::to_string(stream.device_index()));
    }
    devices().ledger.touch(stream.device_index());
    if (*event == nullptr) *event = new Event();
    auto* own = static_cast<Event*>(*event);
    own->device = stream.device_index();
    devices().books.record(own, stream);
    own->point = devices().engine.record(key_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    auto* own = static_cast<Event*>(event);
    if (own == nullptr || mutation::is_left_out(mutation::Act::kWait)) return;
    devices().books.block(own, stream);
    devices().engine.wait(key_of(stream), own->point);
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    if (!devices().engine.is_reached(static_cast<Event*>(event)->point)) return false;
    devices().books.host_waits_for(event);
    open_copied();
    return true;
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    if (event == nullptr) return;
    devices().books.forget(event);
    delete static_cast<Event*>(event);
  }
  bool queryStream(const c10::Stream& stream) const override {
    if (!devices().engine.is_idle(key_of(stream))) return false;
    devices().books.host_waits_for(stream);
    open_copied();
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override { wait_for(stream, "synchronizeStream"); }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr || mutation::is_left_out(mutation::Act::kWait)) return;
    // Events may be waited for where streams may not, as Python's sync debug mode has it.
    const std::string text = "synchronizeEvent, called by " + caller();
    devices().ledger.count([&](Counts& counts) { counts.host_waits.push_back(text); });
    devices().engine.synchronize(static_cast<Event*>(event)->point);
    devices().books.host_waits_for(event);
    open_copied();
  }
  void synchronizeDevice(c10::DeviceIndex index) const override {
    devices().ledger.host_waits("synchronizeDevice");
    devices().engine.synchronize_device(index);
    devices().books.host_waits();
    open_copied();
    if (const auto error = devices().engine.take_error(index)) std::rethrow_exception(error);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (Block* block = DeviceAllocator::block_of(data)) devices().allocator.used_on(*block, stream);
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    const auto time = [](void* event) { return static_cast<Event*>(event)->point->when; };
    return std::chrono::duration<double, std::milli>(time(second) - time(first)).count();
  }

 private:
  static c10::Stream stream(int device, c10::StreamId id) { return stream_of({device, id}); }
};

}  // namespace

const c10::impl::DeviceGuardImplInterface& guard() {
  static const auto* const the_guard = new Guard();
  return *the_guard;
}

c10::Device current_device() {
  return guard().getDevice();
}

c10::Stream current_stream(int device) {
  return guard().getStream(device_at(device));
}

c10::Stream new_stream(int index) {
  return guard().getNewStream(device_at(index));
}

}  // namespace ddp::test::device
