// Requests to the server of metrics.
#include "launcher/observe/watch/metrics_server.h"
#include "tests/fuzz/fuzz.h"

std::vector<std::string> fuzz::seeds() {
  return {"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HEAD / HTTP/1.0\n\n", "POST /metrics?a=b HTTP/1.1\n\r\n",
          "\r\n\nGET http://host:1/metrics HTTP/1.1\r\n\r\n", "GET\n\n"};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  using namespace launcher;
  const std::string request(bytes);
  const bool is_whole = is_whole_request(request);
  require(!is_whole || is_whole_request(request + "x"), "a request that is whole stays so");
  const std::string reply = http_reply(request, [](launcher::MetricsFormat) { return std::string("# EOF\n"); });
  require(reply.starts_with("HTTP/1.1 ") && reply.find("\r\n\r\n") != std::string::npos, "each request has a reply");
  return reply.starts_with("HTTP/1.1 200") ? Outcome::kAccepted : Outcome::kRefused;
}
