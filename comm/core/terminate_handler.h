// Internal: what a process does for the other ranks when an uncaught exception, of any thread, is about to end it.
#pragma once

#include <functional>
#include <string>

namespace ddp::detail {

/// What ends the process.
struct UncaughtException {
  std::string what;
  /// gloo throws in a thread of its own when a message has not the length of this rank's collective: another rank has
  /// called something else, and this one is a victim.
  bool is_mismatch = false;
};

/// std::terminate() calls `action` once, in the thread that failed, and then the previous handler.
class TerminateHandler {
 public:
  using Action = std::function<void(const UncaughtException&)>;

  explicit TerminateHandler(Action action);
  ~TerminateHandler();
  TerminateHandler(const TerminateHandler&) = delete;
  TerminateHandler& operator=(const TerminateHandler&) = delete;
};

}  // namespace ddp::detail
