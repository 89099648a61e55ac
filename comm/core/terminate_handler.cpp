#include "comm/core/terminate_handler.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <typeinfo>
#include <utility>

namespace ddp::detail {
namespace {

// std::terminate's handler has no arguments, so its data is here. Never destroyed: threads may outlive static
// objects.
struct Registry {
  std::mutex mutex;
  std::map<const TerminateHandler*, TerminateHandler::Action> all;
  std::terminate_handler previous = nullptr;
};

Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

UncaughtException current_exception() {
  const std::exception_ptr exception = std::current_exception();
  if (!exception) return {.what = "std::terminate()"};
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return {.what = error.what(), .is_mismatch = std::strstr(typeid(error).name(), "4gloo") != nullptr};
  } catch (...) {
    return {.what = "an unknown exception"};
  }
}

[[noreturn]] void on_terminate() {
  std::terminate_handler previous = nullptr;
  {
    Registry& last = registry();
    // A second thread that fails waits here until the process exits.
    const std::lock_guard lock(last.mutex);
    previous = last.previous;
    const UncaughtException exception = current_exception();
    for (const auto& [owner, action] : std::exchange(last.all, {})) {
      try {
        action(exception);
      } catch (...) {  // the first error is the one that counts
      }
    }
    if (previous != nullptr) previous();
  }
  std::abort();
}

}  // namespace

TerminateHandler::TerminateHandler(Action action) {
  Registry& last = registry();
  const std::lock_guard lock(last.mutex);
  static const bool installed = [&] {
    last.previous = std::set_terminate(on_terminate);
    return true;
  }();
  static_cast<void>(installed);
  last.all.emplace(this, std::move(action));
}

TerminateHandler::~TerminateHandler() {
  Registry& last = registry();
  const std::lock_guard lock(last.mutex);
  last.all.erase(this);
}

}  // namespace ddp::detail
