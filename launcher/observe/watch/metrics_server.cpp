#include "launcher/observe/watch/metrics_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

constexpr std::chrono::milliseconds kMetricsPause{1000};

ListenAt place_of(const std::string& host) {
  if (host == "127.0.0.1") return {.kind = ListenAt::Kind::kLoopback};
  if (host == "0.0.0.0" || host == "::") return {.kind = ListenAt::Kind::kAnyAddress};
  SocketAddress address;
  auto* four = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    address.length = sizeof *four;
  } else if (::inet_pton(AF_INET6, host.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    address.length = sizeof *six;
  } else {
    throw LaunchError("expected PORT or ADDRESS:PORT, but '" + host + "' is not an address");
  }
  return {.kind = ListenAt::Kind::kAddresses, .addresses = {address}};
}

std::string reply(const std::string& status, const std::string& type, const std::string& body,
                  const std::string& fields = "") {
  return "HTTP/1.1 " + status + "\r\nContent-Type: " + type + "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n" + fields + "Connection: close\r\n\r\n" + body;
}

// Removes empty lines before a request, as RFC 9112 requires.
std::string_view without_empty_lines(std::string_view request) {
  request.remove_prefix(std::min(request.size(), request.find_first_not_of("\r\n")));
  return request;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; });
  return result;
}

// Returns the part before the first `end`, and removes it with `end` from `text`.
std::string_view next_part(std::string_view& text, char end) {
  const std::string_view part = text.substr(0, text.find(end));
  text.remove_prefix(std::min(text.size(), part.size() + 1));
  const std::size_t first = part.find_first_not_of(" \t\r");
  return first == std::string_view::npos ? std::string_view()
                                         : part.substr(first, part.find_last_not_of(" \t\r") + 1 - first);
}

// Returns the weight in an entry of Accept: 0.3 in "text/plain;version=0.0.4;q=0.3", 1 if the entry has no weight.
double weight_of(std::string_view parameters) {
  while (!parameters.empty()) {
    const std::string parameter(next_part(parameters, ';'));
    if (parameter.starts_with("q=")) return std::strtod(parameter.c_str() + 2, nullptr);
  }
  return 1;
}

std::string answer_to(std::string_view path, MetricsFormat format, const Metrics& metrics) {
  if (path.starts_with("http://")) {  // the form for a proxy
    path.remove_prefix(7);
    path.remove_prefix(std::min(path.size(), path.find('/')));
  }
  path = path.substr(0, path.find('?'));
  if (path != "/metrics" && path != "/") return reply("404 Not Found", "text/plain", "there is only /metrics\n");
  return reply("200 OK",
               format == MetricsFormat::kOpenMetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                                     : "text/plain; version=0.0.4; charset=utf-8",
               metrics(format), "Vary: Accept\r\n");
}

}  // namespace

MetricsServer::MetricsServer(EventLoop& loop, const MetricsAddress& at, Metrics metrics) try
    : host_(at.host),
      server_(
          loop,
          {.is_whole = [](const std::string& text) { return is_whole_request(text); },
           .answer = [metrics = std::move(metrics)](const std::string& text) { return http_reply(text, metrics); },
           .too_long = reply("431 Request Header Fields Too Large", "text/plain", "the request is longer than 8 KiB\n"),
           .too_late =
               reply("408 Request Timeout", "text/plain", "the request did not end with an empty line in time\n")}),
      listener_(loop, place_of(at.host), at.port, [this](int fd) {
        if (!server_.accept_from(fd)) listener_.pause(kMetricsPause);
      }) {
} catch (const PortInUse&) {
  throw LaunchError("port " + std::to_string(at.port) +
                    " is in use by another program; choose another one with --metrics_port");
} catch (const LaunchError& error) {
  throw LaunchError("--metrics_port " + at.host + ":" + std::to_string(at.port) + ": " + error.what());
}

std::string MetricsServer::url() const {
  const bool is_six = host_.find(':') != std::string::npos;
  return "http://" + (is_six ? "[" + host_ + "]" : host_) + ":" + std::to_string(listener_.port()) + "/metrics";
}

bool is_whole_request(const std::string& text) {
  const std::string_view request = without_empty_lines(text);
  // Some clients end their lines without a carriage return.
  return request.find("\n\n") != std::string_view::npos || request.find("\n\r\n") != std::string_view::npos;
}

MetricsFormat accepted_format(const std::string& request) {
  double open = 0;
  double text = 0;
  std::string_view lines = request;
  next_part(lines, '\n');
  while (!lines.empty()) {
    const std::string line = lower(next_part(lines, '\n'));
    if (!line.starts_with("accept:")) continue;
    std::string_view entries = std::string_view(line).substr(7);
    while (!entries.empty()) {
      std::string_view entry = next_part(entries, ',');
      const std::string_view type = next_part(entry, ';');
      if (type == "application/openmetrics-text") open = std::max(open, weight_of(entry));
      if (type == "text/plain") text = std::max(text, weight_of(entry));
    }
  }
  return open > 0 && open >= text ? MetricsFormat::kOpenMetrics : MetricsFormat::kText;
}

std::string http_reply(const std::string& request, const Metrics& metrics) {
  std::string_view line = without_empty_lines(request);
  line = line.substr(0, line.find_first_of("\r\n"));
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == 0 || first == last || !line.substr(last + 1).starts_with("HTTP/")) {
    return reply("400 Bad Request", "text/plain", "expected GET /metrics HTTP/1.1\n");
  }
  const std::string_view method = line.substr(0, first);
  if (method != "GET" && method != "HEAD") {
    return reply("405 Method Not Allowed", "text/plain", "only GET and HEAD\n", "Allow: GET, HEAD\r\n");
  }
  const std::string whole = answer_to(line.substr(first + 1, last - first - 1), accepted_format(request), metrics);
  return method == "GET" ? whole : whole.substr(0, whole.find("\r\n\r\n") + 4);
}

}  // namespace launcher
