// Bytes as pickles of protocol 2 have them, which knows no bytes: the text whose characters have their numbers. No
// LibTorch.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddp {

/// The text, in UTF-8, whose characters U+0000 to U+00FF are the bytes.
std::string latin1_to_utf8(std::string_view bytes);

/// Converts each character of `text` to the byte with its number; nullopt if a character is above U+00FF or `text` is
/// not valid UTF-8.
std::optional<std::string> utf8_to_latin1(std::string_view text);

}  // namespace ddp
