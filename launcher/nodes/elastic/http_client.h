// Sends requests to an HTTP server from the event loop, one after the other.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/os/network/connector.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher::elastic {

struct HttpRequest {
  std::string method = "GET";
  std::string path{};  // escaped
  std::string body{};  // JSON
};

struct HttpReply {
  int status = 0;
  std::string body{};
};

// No reply to these requests is longer.
inline constexpr std::size_t kMaxHttpReply = std::size_t{1} << 20;

// Encodes all characters but letters, digits and "-_.~" as %XX.
std::string url_escaped(std::string_view text);

// `host` is the host of the connection. The request asks the server to close the connection after its reply.
std::string to_text(const HttpRequest& request, const std::string& host);

// Parses one reply from the bytes of a connection, which may arrive in any pieces.
class HttpReplyReader {
 public:
  enum class State : std::uint8_t { kIncomplete, kComplete, kInvalid };

  State take(std::string_view bytes);
  State end();
  const HttpReply& reply() const { return reply_; }
  bool is_other_protocol() const { return is_other_protocol_; }
  const std::string& problem() const { return problem_; }

 private:
  enum class Part : std::uint8_t { kHead, kFixedLength, kUntilEnd, kChunkSize, kChunk, kTrailer, kDone, kInvalid };

  bool advance();
  bool read_head();
  bool read_fixed_length();
  bool read_until_end();
  bool read_chunk_size();
  bool read_chunk();
  bool read_trailer();
  bool refuse(std::string problem);
  State state() const;

  Part part_ = Part::kHead;
  std::string pending_;       // received, but not parsed yet
  std::size_t expected_ = 0;  // size of the body, or of the present chunk
  HttpReply reply_;
  std::string problem_;
  bool is_other_protocol_ = false;
};

class HttpClient {
 public:
  // Nothing means that the server could not be reached, or that the reply was invalid; problem() gives the reason. The
  // callback may destroy the client.
  using OnReply = std::function<void(const std::optional<HttpReply>&)>;

  HttpClient(EventLoop& loop, std::string host, std::uint16_t port, std::chrono::milliseconds time_limit);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void ask(HttpRequest request, OnReply on_reply);
  // True when no request is pending.
  bool is_idle() const { return waiting_.empty(); }
  // Cancels all requests, also the one that was sent.
  void cancel();
  std::string problem() const { return problem_.empty() && connector_ ? connector_->problem() : problem_; }
  // The last request was refused: the host is up, but no process listens at the port.
  bool was_refused() const { return was_refused_; }
  // The last reply was not HTTP.
  bool was_other_protocol() const { return was_other_protocol_; }
  // This machine's address in the network of the server, "" when it was never reached.
  const std::string& own_address() const { return own_address_; }

 private:
  struct Waiting {
    HttpRequest request;
    OnReply on_reply;
  };

  void begin();
  void on_connected(UniqueFd fd);
  void on_event(std::uint32_t events);
  void receive();
  void finish(HttpReplyReader::State state);
  void fail(std::string problem);
  void report_result(const std::optional<HttpReply>& reply);
  void close();

  EventLoop& loop_;
  std::string host_;
  std::uint16_t port_;
  std::chrono::milliseconds time_limit_;
  std::string known_address_;  // the server's, so that its name is not resolved each time
  std::string own_address_;
  std::string problem_;
  bool was_refused_ = false;
  bool was_other_protocol_ = false;
  std::deque<Waiting> waiting_;  // the first one has been sent
  std::unique_ptr<Connector> connector_;
  UniqueFd fd_;
  std::string outgoing_;
  HttpReplyReader incoming_;
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher::elastic
