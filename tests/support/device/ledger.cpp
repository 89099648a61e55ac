#include "tests/support/device/ledger.h"

#include <stdexcept>
#include <utility>

#include "tests/support/device/caller.h"

// What Python's torch.cuda.set_sync_debug_mode() sets in LibTorch's CUDA half; tests/support/gpu_waits.h finds it by
// name.
extern "C" {
__attribute__((visibility("default"))) int ddprun_test_warning_state __asm__(
    "_ZZN3c104cuda13warning_stateEvE14warning_state_") = 0;
}

namespace ddp::test::device {

void Ledger::fault(std::string text) {
  const std::lock_guard lock(mutex_);
  faults_.push_back(std::move(text));
}

void Ledger::wrong_device(std::string text) {
  count([](Counts& counts) { ++counts.wrong_device; });
  fault(std::move(text));
}

void Ledger::touch(int device) {
  const std::lock_guard lock(mutex_);
  touched_.insert(device);
  has_context_ = true;
}

void Ledger::touch_any(int device) {
  const std::lock_guard lock(mutex_);
  if (!has_context_) touched_.insert(device);
  has_context_ = true;
}

void Ledger::host_waits(const std::string& why) {
  const std::string text = why + ", called by " + caller();
  count([&](Counts& counts) { counts.host_waits.push_back(text); });
  constexpr int kForbidden = 2;
  if (ddprun_test_warning_state == kForbidden) throw std::runtime_error("called a synchronizing operation: " + text);
}

Counts Ledger::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void Ledger::forget_counts() {
  const std::lock_guard lock(mutex_);
  counts_ = {};
}

std::vector<std::string> Ledger::take_faults() {
  const std::lock_guard lock(mutex_);
  return std::exchange(faults_, {});
}

std::vector<int> Ledger::take_touched() {
  const std::lock_guard lock(mutex_);
  const std::set<int> touched = std::exchange(touched_, {});
  return {touched.begin(), touched.end()};
}

}  // namespace ddp::test::device
