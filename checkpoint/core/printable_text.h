// Text from files as a terminal may have it. No LibTorch.
#pragma once

#include <string>
#include <string_view>

namespace ddp {

/// `text` with \xNN for each byte of a control character, of seven or eight bits, and of bytes that are not UTF-8;
/// those control characters that stand in `kept` stay.
std::string printable_text(std::string_view text, std::string_view kept = {});

}  // namespace ddp
