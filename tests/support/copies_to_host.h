// Finds copies towards the CPU that the host would not wait for, on a machine that has nothing but a CPU: such a copy
// is asked for in the same way whichever device the tensor comes from.
#pragma once

#include <ATen/record_function.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>

namespace ddp::test {

/// Counts, while it lives, calls of operators by any thread that have an argument non_blocking which is true and whose
/// result lies on the CPU. One at a time.
class UnawaitedCopiesToHost {
 public:
  UnawaitedCopiesToHost() {
    count_() = 0;
    handle_ =
        at::addGlobalCallback(at::RecordFunctionCallback(look).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~UnawaitedCopiesToHost() { at::removeCallback(handle_); }
  UnawaitedCopiesToHost(const UnawaitedCopiesToHost&) = delete;
  UnawaitedCopiesToHost& operator=(const UnawaitedCopiesToHost&) = delete;

  int count() const { return count_(); }

 private:
  static std::atomic<int>& count_() {
    static std::atomic<int> value = 0;
    return value;
  }

  static std::unique_ptr<at::ObserverContext> look(const at::RecordFunction& function) {
    const auto& schema = function.operator_schema();
    if (!schema) return nullptr;
    const auto inputs = function.inputs();
    const auto argument = [&](const char* name) -> const c10::IValue* {
      const auto index = schema->argumentIndexWithName(name);
      return index && static_cast<size_t>(*index) < inputs.size() ? &inputs[static_cast<size_t>(*index)] : nullptr;
    };
    const auto* non_blocking = argument("non_blocking");
    if (!non_blocking || !non_blocking->isBool() || !non_blocking->toBool()) return nullptr;
    const auto* device = argument("device");
    const auto* self = argument("self");
    const bool towards_host = device && device->isDevice() ? device->toDevice().is_cpu() : self->toTensor().is_cpu();
    if (towards_host) ++count_();
    return nullptr;
  }

  at::CallbackHandle handle_;
};

}  // namespace ddp::test
