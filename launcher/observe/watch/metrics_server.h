// Serves what the job is doing as OpenMetrics, for Prometheus and others: GET /metrics.
#pragma once

#include <functional>
#include <string>

#include "launcher/observe/watch/reply_server.h"
#include "launcher/os/network/listener.h"
#include "launcher/os/system/event_loop.h"

namespace launcher {

// Where metrics are served: "9400" is loopback's, "0.0.0.0:9400" every address's, "10.0.0.7:9400" that one's; port 0 is
// one that is free.
struct MetricsAddress {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
};

class MetricsServer {
 public:
  // Throws LaunchError when the address cannot be had.
  MetricsServer(EventLoop& loop, const MetricsAddress& at, std::function<std::string()> metrics);

  // "http://127.0.0.1:9400/metrics", with the port that it was given where none was asked for.
  std::string url() const;

 private:
  const std::string host_;
  ReplyServer server_;
  Listener listener_;
};

// Whether a request has its empty line. Pure.
bool is_whole_request(const std::string& text);
// The reply to a request of HTTP. Pure but for `metrics`.
std::string http_reply(const std::string& request, const std::function<std::string()>& metrics);

}  // namespace launcher
