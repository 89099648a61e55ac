// Serves what the job is doing for Prometheus and others, as OpenMetrics or in its text format: GET /metrics.
#pragma once

#include <functional>
#include <string>

#include "launcher/observe/watch/reply_server.h"
#include "launcher/observe/watch/status_document.h"
#include "launcher/os/network/listener.h"
#include "launcher/os/system/event_loop.h"

namespace launcher {

// Where metrics are served: "9400" is loopback's, "0.0.0.0:9400" every address's, "10.0.0.7:9400" that one's; port 0 is
// one that is free.
struct MetricsAddress {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
};

using Metrics = std::function<std::string(MetricsFormat)>;

class MetricsServer {
 public:
  // Throws LaunchError when the address cannot be had.
  MetricsServer(EventLoop& loop, const MetricsAddress& at, Metrics metrics);

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
std::string http_reply(const std::string& request, const Metrics& metrics);
// What a request's Accept fields ask for: OpenMetrics where they prefer it to text, else text. Pure.
MetricsFormat accepted_format(const std::string& request);

}  // namespace launcher
