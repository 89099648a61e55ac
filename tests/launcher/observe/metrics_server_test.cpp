#include "launcher/observe/watch/metrics_server.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <string>

#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/event_loop.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

class MetricsServerTest {
 protected:
  UniqueFd connect() const {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const std::string url = server_.url();
    const std::size_t colon = url.rfind(':');
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(url.substr(colon + 1))));
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    return fd;
  }
  void send(const UniqueFd& fd, std::string_view bytes) {
    REQUIRE(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  }
  void run_for(std::chrono::milliseconds time) {
    bool is_over = false;
    loop_.call_at(EventLoop::Clock::now() + time, [&] { is_over = true; });
    while (!is_over) loop_.run_once();
  }
  // All that comes until the server closes its side; "reset" where the connection broke.
  std::string reply(const UniqueFd& fd) {
    std::string text;
    const auto end = EventLoop::Clock::now() + 60s;
    while (EventLoop::Clock::now() < end) {
      run_for(1ms);
      std::array<char, 65536> buffer{};
      const ssize_t count = ::recv(fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (count == 0) return text;
      if (count < 0 && errno != EAGAIN) return "reset";
      if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
    }
    return "late";
  }
  std::string ask(std::string_view request) {
    const UniqueFd fd = connect();
    send(fd, request);
    return reply(fd);
  }
  EventLoop loop_;
  MetricsServer server_{loop_, {}, [](MetricsFormat format) {
                          return std::string(format == MetricsFormat::kText ? "a 1\n" : "a 1\n# EOF\n");
                        }};
};

TEST_CASE_METHOD(MetricsServerTest, "MetricsServer: lines may end with or without a carriage return") {
  for (const char* request :
       {"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "GET /metrics HTTP/1.1\nHost: x\n\n", "GET /metrics HTTP/1.0\n\n",
        "GET / HTTP/1.1\r\n\n", "\r\n\r\nGET /metrics?a=b HTTP/1.1\n\r\n",
        "GET http://host:9400/metrics HTTP/1.1\r\n\r\n"}) {
    CAPTURE(request);
    const std::string text = ask(request);
    CHECK_THAT(text, StartsWith("HTTP/1.1 200 OK\r\n") && EndsWith("a 1\n"));
  }
}

TEST_CASE_METHOD(MetricsServerTest, "MetricsServer: a request may come in two parts, split at every byte") {
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\n\r\n";
  for (std::size_t at = 1; at < request.size(); ++at) {
    CAPTURE(at);
    const UniqueFd fd = connect();
    send(fd, request.substr(0, at));
    run_for(1ms);
    send(fd, request.substr(at));
    CHECK_THAT(reply(fd), StartsWith("HTTP/1.1 200 OK\r\n"));
  }
}

TEST_CASE_METHOD(MetricsServerTest, "MetricsServer: a header that is too long is answered, and the answer arrives") {
  for (const std::size_t size : {8192U, 10'000U, 300'000U}) {
    CAPTURE(size);
    CHECK_THAT(ask("GET /metrics HTTP/1.1\r\nX: " + std::string(size, 'x')), StartsWith("HTTP/1.1 431 "));
  }
  // Within one read, its end is there nevertheless.
  CHECK_THAT(ask("GET /metrics HTTP/1.1\r\nX: " + std::string(1000, 'x') + "\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST_CASE_METHOD(MetricsServerTest, "MetricsServer: a body behind the header does not take the answer away") {
  CHECK_THAT(ask("POST /metrics HTTP/1.1\r\nContent-Length: 200000\r\n\r\n" + std::string(200'000, 'x')),
             StartsWith("HTTP/1.1 405 ") && ContainsSubstring("Allow: GET, HEAD\r\n"));
}

TEST_CASE_METHOD(MetricsServerTest, "MetricsServer: what is no request, or asks for something else, is refused") {
  CHECK_THAT(ask("hello\n\n"), StartsWith("HTTP/1.1 400 "));
  CHECK_THAT(ask("GET /metrics\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  CHECK_THAT(ask("BREW /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  CHECK_THAT(ask("GET /metricsx HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  CHECK_THAT(ask(std::string(1, '\x16') + "\x03\x01 TLS\n\n"), StartsWith("HTTP/1.1 400 "));
}

TEST_CASE_METHOD(MetricsServerTest,
                 "MetricsServer: OpenMetrics for those who prefer it, else Prometheus' text format") {
  const std::string begin = "GET /metrics HTTP/1.1\r\nHost: x\r\n";
  for (const char* accept :
       {"", "Accept: */*\r\n", "Accept: text/plain\r\n",
        "accept: text/plain;version=0.0.4,application/openmetrics-text;q=0.5\r\n",
        "X-Accept: application/openmetrics-text\r\n", "Accept: application/openmetrics-text;q=0\r\n"}) {
    CAPTURE(accept);
    const std::string text = ask(begin + accept + "\r\n");
    CHECK_THAT(text, ContainsSubstring("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n") &&
                         EndsWith("\r\n\r\na 1\n"));
  }
  for (const char* accept :
       {"Accept: application/openmetrics-text\r\n",
        "ACCEPT:application/OpenMetrics-text; version=1.0.0 ; q=0.8 , text/plain;q=0.5\r\n",
        "Accept: "
        "application/vnd.google.protobuf;q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
        "text/plain;version=0.0.4;q=0.3,*/*;q=0.2\r\n",
        "Accept: text/plain;q=0.1\r\nAccept: application/openmetrics-text;q=0.9\r\n"}) {
    CAPTURE(accept);
    const std::string text = ask(begin + accept + "\r\n");
    CHECK_THAT(text,
               ContainsSubstring("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n") &&
                   EndsWith("# EOF\n"));
  }
}

TEST_CASE_METHOD(MetricsServerTest, "MetricsServer: HEAD has GET's header and no body") {
  const std::string get = ask("GET /metrics HTTP/1.1\r\n\r\n");
  const std::string head = ask("HEAD /metrics HTTP/1.1\r\n\r\n");
  CHECK(head == get.substr(0, get.find("\r\n\r\n") + 4));
  CHECK_THAT(ask("HEAD /other HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 ") && EndsWith("\r\n\r\n"));
}

TEST_CASE_METHOD(MetricsServerTest, "MetricsServer: one who never ends the request is told so in time") {
  const UniqueFd fd = connect();
  send(fd, "GET /metrics HTTP/1.1\r\n");
  CHECK_THAT(reply(fd), StartsWith("HTTP/1.1 408 "));
}

}  // namespace
}  // namespace launcher
