#include "tests/support/device/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GeneratorImpl.h>

#include <array>
#include <cstring>
#include <deque>
#include <random>

#include "tests/support/device/devices.h"

namespace ddp::test::device {
namespace {

class Random final : public c10::GeneratorImpl {
 public:
  explicit Random(int device) : GeneratorImpl(device_at(device), c10::DispatchKeySet(devices().key)) {}

  void set_current_seed(uint64_t seed) override { state_ = {seed, 0}; }
  void set_offset(uint64_t offset) override { state_[1] = offset; }
  uint64_t get_offset() const override { return state_[1]; }
  uint64_t current_seed() const override { return state_[0]; }
  uint64_t seed() override {
    set_current_seed(std::random_device()());
    return state_[0];
  }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == sizeof state_, "simulated device: this is not a state of a generator");
    std::memcpy(state_.data(), state.data(), sizeof state_);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const at::Tensor state = at::empty({static_cast<int64_t>(sizeof state_)}, at::kByte);
    std::memcpy(state.mutable_data_ptr(), state_.data(), sizeof state_);
    return state.getIntrusivePtr();
  }
  static c10::DeviceType device_type() { return devices().type; }

  at::Generator next() {
    const std::lock_guard lock(mutex_);
    std::seed_seq mixed{state_[0], state_[0] >> 32, state_[1]++};
    std::array<uint32_t, 2> words{};
    mixed.generate(words.begin(), words.end());
    return at::detail::createCPUGenerator(words[0] | static_cast<uint64_t>(words[1]) << 32);
  }

 private:
  Random* clone_impl() const override {
    auto* copy = new Random(device().index());
    copy->state_ = state_;
    return copy;
  }

  std::array<uint64_t, 2> state_{c10::default_rng_seed_val, 0};  // seed, draws
};

}  // namespace

at::Generator new_generator(int device) {
  return at::make_generator<Random>(device < 0 ? current_device().index() : device);
}

const at::Generator& default_generator(int device) {
  static auto* const all = [] {
    auto* made = new std::deque<at::Generator>();
    for (int index = 0; index < devices().count; ++index) made->push_back(new_generator(index));
    return made;
  }();
  return all->at(static_cast<size_t>(device < 0 ? current_device().index() : device));
}

at::Generator for_kernel(const at::Generator& generator) {
  return static_cast<Random*>(generator.unsafeGetGeneratorImpl())->next();
}

}  // namespace ddp::test::device
