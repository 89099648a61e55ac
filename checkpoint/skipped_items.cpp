#include "checkpoint/skipped_items.h"

#include <cstdio>

#include <ddprun/checkpoint/safetensors_header.h>

#include "base/joined.h"

namespace ddp {

std::string skipped_reason(const StoredTensors& stored, const std::string& name) {
  const auto found = stored.skipped.find(name);
  return found != stored.skipped.end() ? " (" + found->second + ")" : "";
}

std::string list_skipped(const StoredTensors& stored) {
  return detail::joined_some(stored.skipped, 6, [](const auto& item) {
    return safetensors::quote_name(item.first) + " (" + item.second + ")";
  });
}

void warn_of_skipped(const std::string& source, const std::string& list) {
  if (!list.empty()) std::fprintf(stderr, "%s: not read: %s\n", source.c_str(), list.c_str());
}

}  // namespace ddp
