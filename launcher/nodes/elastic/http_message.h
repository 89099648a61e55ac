// Requests and replies of HTTP/1.1, as far as etcd's API needs them: one on each connection. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

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

// Longer than any reply to what is asked.
inline constexpr std::size_t kMaxHttpReply = std::size_t{1} << 20;

// All but letters, digits, and "-_.~" as %XX.
std::string url_escaped(std::string_view text);
// `host` is what was connected to. The server is asked to close the connection after its reply.
std::string to_text(const HttpRequest& request, const std::string& host);

// Reads one reply from the bytes of a connection, in whatever pieces they come.
class HttpReplyReader {
 public:
  enum class State : std::uint8_t { kIncomplete, kComplete, kInvalid };

  // What follows a complete reply is ignored.
  State take(std::string_view bytes);
  // The server has closed the connection.
  State end();
  const HttpReply& reply() const { return reply_; }
  // Why it is invalid.
  const std::string& problem() const { return problem_; }

 private:
  enum class Part : std::uint8_t { kHead, kSized, kUntilEnd, kChunkSize, kChunk, kTrailer, kDone, kInvalid };

  bool advance();
  bool read_head();
  bool read_sized();
  bool read_until_end();
  bool read_chunk_size();
  bool read_chunk();
  bool read_trailer();
  bool refuse(std::string problem);
  State state() const;

  Part part_ = Part::kHead;
  std::string pending_;       // came, and is not read yet
  std::size_t expected_ = 0;  // bytes of the body, or of the chunk
  HttpReply reply_;
  std::string problem_;
};

}  // namespace launcher::elastic
