#include "recompute/random_states.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>

#include <algorithm>
#include <mutex>

namespace ddp::recompute {
namespace {

at::Generator generator_of(c10::Device device) {
  return at::globalContext().defaultGenerator(device);
}

}  // namespace

RandomStates RandomStates::current(const std::vector<c10::Device>& devices) {
  RandomStates states;
  const auto add = [&states](c10::Device device) {
    at::Generator generator = generator_of(device);
    const std::lock_guard lock(generator.mutex());
    states.states_.emplace_back(device, generator.get_state());
  };
  add(c10::kCPU);
  for (const c10::Device device : devices) add(device);
  return states;
}

void RandomStates::apply() const {
  for (const auto& [device, state] : states_) {
    at::Generator generator = generator_of(device);
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
}

std::vector<c10::Device> RandomStates::devices() const {
  std::vector<c10::Device> result;
  for (const auto& [device, state] : states_) {
    if (!device.is_cpu()) result.push_back(device);
  }
  return result;
}

RandomStatesScope::RandomStatesScope(const RandomStates& during) : previous_(RandomStates::current(during.devices())) {
  during.apply();
}

RandomStatesScope::~RandomStatesScope() {
  previous_.apply();
}

std::vector<c10::Device> devices_of(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> result;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.device().is_cpu() || tensor.is_meta()) continue;
    if (std::find(result.begin(), result.end(), tensor.device()) == result.end()) result.push_back(tensor.device());
  }
  return result;
}

}  // namespace ddp::recompute
