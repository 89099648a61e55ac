#include "checkpoint/skipped_items.h"

#include <cstdio>

#include <ddprun/checkpoint/safetensors_header.h>

namespace ddp {

std::string skipped_reason(const StoredTensors& stored, const std::string& name) {
  const auto found = stored.skipped.find(name);
  return found != stored.skipped.end() ? " (" + found->second + ")" : "";
}

std::string list_skipped(const StoredTensors& stored) {
  constexpr size_t kShown = 6;
  std::string list;
  size_t count = 0;
  for (const auto& [name, what] : stored.skipped) {
    if (count++ == kShown) break;
    list.append(list.empty() ? "" : ", ").append(safetensors::quote_name(name)).append(" (" + what + ")");
  }
  if (stored.skipped.size() > kShown) list += " and " + std::to_string(stored.skipped.size() - kShown) + " more";
  return list;
}

void warn_of_skipped(const std::string& source, const std::string& list) {
  if (!list.empty()) std::fprintf(stderr, "%s: not read: %s\n", source.c_str(), list.c_str());
}

}  // namespace ddp
