#include "launcher/watch/metrics_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <chrono>
#include <utility>

#include "launcher/network/tcp_socket.h"
#include "launcher/system/launch_error.h"

namespace launcher {
namespace {

constexpr std::chrono::milliseconds kMetricsPause{1000};

ListenAt place_of(const std::string& host) {
  if (host == "127.0.0.1") return {.kind = ListenAt::Kind::kLoopback};
  if (host == "0.0.0.0" || host == "::") return {.kind = ListenAt::Kind::kEverywhere};
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
    throw LaunchError("expected PORT or ADDRESS:PORT, and '" + host + "' is no address");
  }
  return {.kind = ListenAt::Kind::kAddresses, .addresses = {address}};
}

std::string reply(const std::string& status, const std::string& type, const std::string& body) {
  return "HTTP/1.1 " + status + "\r\nContent-Type: " + type + "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nConnection: close\r\n\r\n" + body;
}

}  // namespace

MetricsServer::MetricsServer(EventLoop& loop, const MetricsAddress& at, std::function<std::string()> metrics) try
    : host_(at.host),
      server_(
          loop,
          {.is_whole = [](const std::string& text) { return text.find("\r\n\r\n") != std::string::npos; },
           .answer = [metrics = std::move(metrics)](const std::string& text) { return http_reply(text, metrics); }}),
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

std::string http_reply(const std::string& request, const std::function<std::string()>& metrics) {
  const std::string line = request.substr(0, request.find('\r'));
  const bool is_get = line.starts_with("GET ");
  if (!is_get && !line.starts_with("HEAD ")) return reply("405 Method Not Allowed", "text/plain", "only GET\n");
  const std::string path = line.substr(line.find(' ') + 1);
  if (!path.starts_with("/metrics ") && !path.starts_with("/metrics?") && !path.starts_with("/ ")) {
    return reply("404 Not Found", "text/plain", "there is only /metrics\n");
  }
  const std::string whole = reply("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", metrics());
  return is_get ? whole : whole.substr(0, whole.find("\r\n\r\n") + 4);
}

}  // namespace launcher
