// Serves the job's metrics for Prometheus and other programs at GET /metrics, as OpenMetrics or in Prometheus's text
// format.
#pragma once

#include <functional>
#include <string>

#include "launcher/observe/watch/reply_server.h"
#include "launcher/observe/watch/status_document.h"
#include "launcher/os/network/listener.h"
#include "launcher/os/system/event_loop.h"

namespace launcher {

// The address of the metrics server: "9400" means loopback, "0.0.0.0:9400" all addresses, "10.0.0.7:9400" this one.
// Port 0 means any free port.
struct MetricsAddress {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
};

using Metrics = std::function<std::string(MetricsFormat)>;

class MetricsServer {
 public:
  // Throws LaunchError when the server cannot listen at the address.
  MetricsServer(EventLoop& loop, const MetricsAddress& at, Metrics metrics);

  // Returns "http://127.0.0.1:9400/metrics", with the port that was assigned if none was requested.
  std::string url() const;

 private:
  const std::string host_;
  ReplyServer server_;
  Listener listener_;
};

// Whether a request is complete, up to its empty line. Pure.
bool is_whole_request(const std::string& text);
// Returns the reply to an HTTP request. Pure except for `metrics`.
std::string http_reply(const std::string& request, const Metrics& metrics);
// The format that the Accept fields of a request ask for: OpenMetrics if they prefer it to text, else text. Pure.
MetricsFormat accepted_format(const std::string& request);

}  // namespace launcher
