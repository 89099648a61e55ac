#include "launcher/elastic/http_message.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>

namespace launcher::elastic {
namespace {

std::optional<std::size_t> number(std::string_view text, int base) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool equal_without_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

// Of the lines behind the first; "" when it is not there.
std::string_view header(std::string_view lines, std::string_view name) {
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find("\r\n"), lines.size());
    const std::string_view line = lines.substr(0, end);
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && equal_without_case(line.substr(0, colon), name)) {
      return trimmed(line.substr(colon + 1));
    }
    lines.remove_prefix(std::min(end + 2, lines.size()));
  }
  return {};
}

std::optional<std::string> joined_chunks(std::string_view text) {
  std::string body;
  while (true) {
    const std::size_t end = text.find("\r\n");
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view size_text = text.substr(0, std::min(end, text.find(';')));
    const auto size = number(trimmed(size_text), 16);
    text.remove_prefix(end + 2);
    if (!size || *size > text.size()) return std::nullopt;
    if (*size == 0) return body;
    body += text.substr(0, *size);
    text.remove_prefix(*size);
    if (!text.starts_with("\r\n")) return std::nullopt;
    text.remove_prefix(2);
  }
}

}  // namespace

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
  std::string body;
  for (const auto& [name, value] : request.form) {
    body.append(body.empty() ? "" : "&").append(url_escaped(name)).append("=").append(url_escaped(value));
  }
  return request.method + " " + request.path + " HTTP/1.1\r\nHost: " + host +
         "\r\nConnection: close\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::optional<HttpReply> parse_http_reply(std::string_view text) {
  const std::size_t end = text.find("\r\n\r\n");
  if (end == std::string_view::npos || !text.starts_with("HTTP/1.") || text.size() < 12) return std::nullopt;
  const auto status = number(text.substr(9, 3), 10);
  if (!status || *status < 100) return std::nullopt;
  HttpReply reply{static_cast<int>(*status), ""};
  const std::string_view head = text.substr(0, end);
  const std::string_view lines = head.substr(std::min(head.find("\r\n"), head.size()));
  const std::string_view rest = text.substr(end + 4);
  if (equal_without_case(header(lines, "transfer-encoding"), "chunked")) {
    auto body = joined_chunks(rest);
    if (!body) return std::nullopt;
    reply.body = std::move(*body);
    return reply;
  }
  const std::string_view length = header(lines, "content-length");
  const auto size = number(length, 10);
  if (!length.empty() && (!size || *size > rest.size())) return std::nullopt;
  reply.body = std::string(rest.substr(0, size.value_or(rest.size())));
  return reply;
}

}  // namespace launcher::elastic
