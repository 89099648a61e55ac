#include "checkpoint/failures.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <system_error>
#include <vector>

#include <ddprun/comm/collectives.h>

namespace ddp {
namespace {

// On the wire: a byte for the kind, then the text.
std::string encode(const Failure& failure) {
  return static_cast<char>(failure.kind) + failure.text;
}

Failure decode(const std::string& bytes) {
  return {.kind = static_cast<FailureKind>(bytes.at(0)), .text = bytes.substr(1)};
}

// After a failure, ranks exit and close their connections. This waits until the other ranks know the cause.
void wait_for_all(const GroupHandle& group) noexcept {
  try {
    barrier(group);
  } catch (const std::exception&) {
    // A rank that has exited knew the cause.
  }
}

}  // namespace

Failure failure_of(const std::function<void()>& action) {
  try {
    action();
    return {};
  } catch (const storage::DamagedCheckpoint& error) {
    return storage::failure_from(error);
  } catch (const std::system_error& error) {
    const bool is_resource_shortage = storage::is_resource_shortage(error.code());
    return {.kind = is_resource_shortage ? FailureKind::kShortage : FailureKind::kError, .text = error.what()};
  } catch (const c10::Error& error) {
    return {.kind = FailureKind::kError, .text = error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return {.kind = FailureKind::kError, .text = *error.what() != '\0' ? error.what() : "unknown error"};
  }
}

Failure combined_failures(const Failure& failure, const GroupHandle& group) {
  std::vector<Failure> failures;
  for (const auto& bytes : all_gather_strings(encode(failure), group)) failures.push_back(decode(bytes));
  Failure combined = failures.front();
  if (std::all_of(failures.begin(), failures.end(), [&](const Failure& each) { return each == combined; })) {
    if (combined) wait_for_all(group);
    return combined;
  }
  combined = {};
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    if (!failures[rank]) continue;
    combined.kind = std::max(combined.kind, failures[rank].kind);
    combined.text +=
        (combined.text.empty() ? "on rank " : "; on rank ") + std::to_string(rank) + ": " + failures[rank].text;
  }
  wait_for_all(group);
  return combined;
}

Failure failure_of_rank_0(const Failure& failure, const GroupHandle& group) {
  auto known = decode(broadcast_string(encode(failure), 0, group));
  if (known) wait_for_all(group);
  return known;
}

void throw_if_failed(const Failure& failure, const std::string& what) {
  if (failure) throw std::runtime_error(what + failure.text);
}

}  // namespace ddp
