// Tells LibTorch of the devices when the library is loaded: before it asks about CUDA, whose answer it keeps.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceType.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <torch/library.h>

#include "tests/support/device/devices.h"
#include "tests/support/device/generator.h"
#include "tests/support/device/guard.h"
#include "tests/support/device/host_memory.h"
#include "tests/support/device/operators.h"
#include "tests/support/device/timer.h"
#include "tests/support/device/watch.h"

namespace ddp::test::device {
namespace {

// The same answers under either name.
template <typename Interface>
class Hooks : public Interface {
 public:
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(devices().count); }
  void setCurrentDevice(c10::DeviceIndex index) const override { guard().setDevice(device_at(index)); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device().index(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return guard().exchangeDevice(device_at(index)).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &host_memory(); }
  bool isPinnedPtr(const void* address) const override { return is_page_locked(address); }
  c10::Device getDeviceFromPtr(void* address) const override { return device_at(devices().memory.device_of(address)); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return new_generator(index); }
};

class CudaHooks final : public Hooks<at::CUDAHooksInterface> {
 public:
  bool hasCUDA() const override { return true; }
  int getNumGPUs() const override { return devices().count; }
  c10::DeviceIndex current_device() const override { return getCurrentDevice(); }
  void deviceSynchronize(c10::DeviceIndex index) const override { guard().synchronizeDevice(index); }
};

[[gnu::constructor]] void register_devices() {
  Devices& all = devices();
  if (all.type == c10::kCUDA) {
    at::CUDAHooksRegistry()->Register("CUDAHooks", [](at::CUDAHooksArgs) -> std::unique_ptr<at::CUDAHooksInterface> {
      return std::make_unique<CudaHooks>();
    });
  } else {
    static Hooks<at::PrivateUse1HooksInterface> hooks;
    at::RegisterPrivateUse1HooksInterface(&hooks);
    c10::register_privateuse1_backend("simulated");
  }
  c10::impl::device_guard_impl_registry[static_cast<size_t>(all.type)].store(&guard());
  c10::SetAllocator(all.type, &all.allocator);
  at::setHostAllocator(all.type, &host_memory());
  c10d::TimerRegistry()->Register(all.type, &make_timer);
  static torch::Library aten(torch::Library::IMPL, "aten", all.key, __FILE__, __LINE__);
  register_tensors(aten);
  register_copies(aten);
  register_composed(aten);
  register_whole_kernels(aten);
  static torch::Library others(torch::Library::IMPL, "_", all.key, __FILE__, __LINE__);
  others.fallback(torch::CppFunction::makeFromBoxedFunction<&run_cpu_kernel>());
  if (all.type != c10::kCUDA) {
    static torch::Library autocast(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastPrivateUse1, __FILE__,
                                   __LINE__);
    register_autocast(autocast);
    static torch::Library all_others(torch::Library::IMPL, "_", c10::DispatchKey::AutocastPrivateUse1, __FILE__,
                                     __LINE__);
    all_others.fallback(torch::CppFunction::makeFallthrough());
  }
  watch_to_the_end();
}

}  // namespace
}  // namespace ddp::test::device
