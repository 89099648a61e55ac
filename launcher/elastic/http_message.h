// Requests and replies of HTTP/1.1, as far as etcd's keys need them: one on each connection. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace launcher::elastic {

struct HttpRequest {
  std::string method = "GET";
  std::string path{};                                       // escaped
  std::vector<std::pair<std::string, std::string>> form{};  // the body, not escaped
};

struct HttpReply {
  int status = 0;
  std::string body{};
};

// Longer than any reply that is asked for.
inline constexpr std::size_t kMaxHttpReply = std::size_t{1} << 20;

// All but letters, digits, and "-_.~" as %XX.
std::string url_escaped(std::string_view text);
// `host` is what was connected to. The server is asked to close the connection behind its reply.
std::string to_text(const HttpRequest& request, const std::string& host);
// All that came until the connection was closed; nothing when that is no whole reply.
std::optional<HttpReply> parse_http_reply(std::string_view text);

}  // namespace launcher::elastic
