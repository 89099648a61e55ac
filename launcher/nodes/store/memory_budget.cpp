#include "launcher/nodes/store/memory_budget.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

namespace launcher::store {
namespace {

// Less where there is less memory.
constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

}  // namespace

int descriptor_limit() {
  rlimit limit{};
  const bool is_known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < std::numeric_limits<int>::max();
  return is_known ? static_cast<int>(limit.rlim_cur) : std::numeric_limits<int>::max();
}

std::size_t memory_limit() {
  std::size_t limit = kMaxBytes;
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0)
    limit = std::min(limit, static_cast<std::size_t>(pages) * static_cast<std::size_t>(page) / 4);
  rlimit space{};
  if (::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
    limit = std::min<std::size_t>(limit, space.rlim_cur / 2);
  }
  return limit;
}

std::string MemoryBudget::full_message() const {
  return "the store is full: " + std::to_string(used_ >> 20) + " of " + std::to_string(limit_ >> 20) +
         " MiB are used by keys, values, and what clients have not sent or read to its end";
}

}  // namespace launcher::store
