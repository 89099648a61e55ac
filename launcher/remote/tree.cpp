#include "launcher/remote/tree.h"

#include <algorithm>

namespace launcher::remote {

std::vector<std::vector<NamedHost>> branches(const std::vector<NamedHost>& hosts, std::size_t fanout) {
  std::vector<std::vector<NamedHost>> found;
  std::vector<NamedHost> distant;
  for (const NamedHost& host : hosts) {
    if (host.is_local) {
      found.push_back({host});
    } else {
      distant.push_back(host);
    }
  }
  const std::size_t count = std::min(std::max<std::size_t>(fanout, 1), distant.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = distant.begin() + static_cast<std::ptrdiff_t>(i * distant.size() / count);
    const auto end = distant.begin() + static_cast<std::ptrdiff_t>((i + 1) * distant.size() / count);
    found.emplace_back(begin, end);
  }
  return found;
}

}  // namespace launcher::remote
