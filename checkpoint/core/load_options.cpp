#include "ddprun/checkpoint/options.h"

namespace ddp {

NameMap::NameMap(std::initializer_list<std::pair<std::string, std::string>> beginnings) {
  if (beginnings.size() == 0) return;
  function_ = [pairs = std::vector(beginnings)](std::string name) {
    for (const auto& [from, to] : pairs) {
      if (name.starts_with(from)) name.replace(0, from.size(), to);
    }
    return name;
  };
}

}  // namespace ddp
