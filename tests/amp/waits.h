// Counts how often the host reads a tensor, which on a GPU is how often it waits for the device.
#pragma once

#include <ATen/record_function.h>

#include <atomic>
#include <memory>
#include <string_view>

#include "tests/support/catch.h"

namespace ddp::test {

/// Counts the calling thread's reads while it lives.
class HostReads {
 public:
  HostReads() {
    count_() = 0;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(count).scopes({at::RecordScope::FUNCTION}));
  }
  ~HostReads() { at::removeCallback(handle_); }
  HostReads(const HostReads&) = delete;
  HostReads& operator=(const HostReads&) = delete;

  int count() const { return count_(); }

 private:
  static int& count_() {
    thread_local int value = 0;
    return value;
  }
  static std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& function) {
    const std::string_view name = function.name();
    // What item(), if (tensor), equal(), nonzero() and masks come down to.
    if (name == "aten::_local_scalar_dense" || name == "aten::is_nonzero" || name == "aten::equal" ||
        name == "aten::nonzero" || name == "aten::masked_select") {
      ++count_();
    }
    return nullptr;
  }

  at::CallbackHandle handle_;
};

}  // namespace ddp::test
