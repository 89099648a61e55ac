// Base64 as JSON's protocol buffers have it: keys and values of etcd. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace launcher::elastic {

std::string to_base64(std::string_view bytes);
// Nothing when `text` is not base64 with its padding.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace launcher::elastic
