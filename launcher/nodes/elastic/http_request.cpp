#include <cctype>

#include "launcher/nodes/elastic/http_client.h"

namespace launcher::elastic {

std::string url_escaped(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain =
        byte < 128 && (std::isalnum(byte) != 0 || std::string_view("-_.~").find(c) != std::string_view::npos);
    if (is_plain) {
      escaped += c;
    } else {
      escaped.append("%").append(1, kDigits[byte >> 4U]).append(1, kDigits[byte & 15U]);
    }
  }
  return escaped;
}

std::string to_text(const HttpRequest& request, const std::string& host) {
  std::string text = request.method + " " + request.path + " HTTP/1.1\r\nHost: " + host +
                     "\r\nConnection: close\r\nAccept: application/json\r\n";
  if (!request.body.empty()) {
    text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(request.body.size()) + "\r\n";
  }
  return text + "\r\n" + request.body;
}

}  // namespace launcher::elastic
