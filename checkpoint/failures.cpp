#include "checkpoint/failures.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <vector>

#include <ddprun/comm/collectives.h>

namespace ddp {

std::string failure_of(const std::function<void()>& action) {
  try {
    action();
    return "";
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return *error.what() != '\0' ? error.what() : "unknown error";
  }
}

std::string combined_failures(const std::string& failure, const GroupHandle& group) {
  const auto failures = all_gather_strings(failure, group);
  const bool all_equal =
      std::all_of(failures.begin(), failures.end(), [&](const std::string& each) { return each == failures.front(); });
  if (all_equal) return failures.front();
  std::string text;
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    if (failures[rank].empty()) continue;
    text += (text.empty() ? "on rank " : "; on rank ") + std::to_string(rank) + ": " + failures[rank];
  }
  return text;
}

}  // namespace ddp
