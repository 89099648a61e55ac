#include "checkpoint/dcp/path.h"

namespace ddp::dcp {

std::string flat_key(const Path& path, size_t begin) {
  std::string key;
  for (size_t i = begin; i < path.size(); ++i) {
    if (i > begin) key += '.';
    if (const auto* text = std::get_if<std::string>(&path[i])) {
      key += *text;
    } else {
      key += std::to_string(std::get<int64_t>(path[i]));
    }
  }
  return key;
}

const std::string* key_at(const Path& path, size_t index) {
  return index < path.size() ? std::get_if<std::string>(&path[index]) : nullptr;
}

}  // namespace ddp::dcp
