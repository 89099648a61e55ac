// Text that a protobuf string field or a terminal may get.
#pragma once

#include <string>
#include <string_view>

namespace ddp {

/// The text with every byte that is no part of valid UTF-8 replaced by U+FFFD. (One such byte in a tag would make
/// readers refuse the whole event.)
std::string valid_utf8(std::string_view text);

}  // namespace ddp
