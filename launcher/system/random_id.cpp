#include "launcher/system/random_id.h"

#include <array>
#include <cstdio>
#include <random>

namespace launcher {

std::string random_id() {
  std::random_device source;
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%08x%08x%08x%08x", source(), source(), source(), source());
  return text.data();
}

}  // namespace launcher
