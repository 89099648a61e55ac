// Internal: what a process still does for the others when an uncaught exception, of any thread, is about to end it.
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

/// `say` is called while it lives, once, in the thread that failed; whatever std::terminate did before follows.
class LastWords {
 public:
  using Say = std::function<void(const UncaughtException&)>;

  explicit LastWords(Say say);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
};

}  // namespace ddp::detail
