#include "base/rank_prefix.h"

#include <array>
#include <charconv>
#include <cmath>
#include <exception>

#include <ddprun/base/rank_info.h>

namespace ddp {

std::string rank_prefix() {
  try {
    return who(rank_info_from_environment()) + ": ";
  } catch (const std::exception&) {
    return "";
  }
}

std::string number_text(double value) {
  std::array<char, 32> buffer{};
  const auto* end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  std::string text(buffer.data(), static_cast<size_t>(end - buffer.data()));
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace ddp
