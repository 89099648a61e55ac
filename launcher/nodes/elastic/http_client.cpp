#include "launcher/nodes/elastic/http_client.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/utf8.h"

namespace launcher::elastic {
namespace {

constexpr std::string_view kStatusLineStart = "HTTP/1.";
constexpr std::string_view kLineEnd = "\r\n";
constexpr std::size_t kMaxHead = std::size_t{64} << 10U;
constexpr std::size_t kMaxChunkLine = 1024;
constexpr std::size_t kShownBytes = 40;

std::optional<std::size_t> number(std::string_view text, int base) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

bool equal_without_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

// Returns the value of a header in the lines after the first; "" when it is missing.
std::string_view header(std::string_view lines, std::string_view name) {
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find(kLineEnd), lines.size());
    const std::string_view line = lines.substr(0, end);
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && equal_without_case(line.substr(0, colon), name)) {
      return trimmed(line.substr(colon + 1));
    }
    lines.remove_prefix(std::min(end + kLineEnd.size(), lines.size()));
  }
  return {};
}

std::string own_address_of(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) return "";
  return host_in(address);
}

}  // namespace

HttpReplyReader::State HttpReplyReader::state() const {
  if (part_ == Part::kDone) return State::kComplete;
  return part_ == Part::kInvalid ? State::kInvalid : State::kIncomplete;
}

HttpReplyReader::State HttpReplyReader::take(std::string_view bytes) {
  if (part_ == Part::kDone || part_ == Part::kInvalid) return state();
  pending_ += bytes;
  while (advance()) {
  }
  return state();
}

HttpReplyReader::State HttpReplyReader::end() {
  if (part_ == Part::kUntilEnd) {
    part_ = Part::kDone;
  } else if (part_ != Part::kDone && part_ != Part::kInvalid) {
    const bool is_empty = part_ == Part::kHead && pending_.empty();
    refuse(is_empty ? "it closed the connection without a reply" : "it closed the connection in the middle of a reply");
  }
  return state();
}

bool HttpReplyReader::refuse(std::string problem) {
  problem_ = std::move(problem);
  part_ = Part::kInvalid;
  return false;
}

// Returns false when more bytes are needed, or when the reply is complete.
bool HttpReplyReader::advance() {
  switch (part_) {
    case Part::kHead:
      return read_head();
    case Part::kFixedLength:
      return read_fixed_length();
    case Part::kUntilEnd:
      return read_until_end();
    case Part::kChunkSize:
      return read_chunk_size();
    case Part::kChunk:
      return read_chunk();
    case Part::kTrailer:
      return read_trailer();
    case Part::kDone:
    case Part::kInvalid:
      break;
  }
  return false;
}

bool HttpReplyReader::read_head() {
  const std::string_view begin = std::string_view(pending_).substr(0, kStatusLineStart.size());
  if (!kStatusLineStart.starts_with(begin)) {
    const std::string_view shown = beginning(pending_, kShownBytes);
    is_other_protocol_ = true;
    return refuse("the program that answers there does not use HTTP: it sent '" +
                  printable(shown.substr(0, shown.find_first_of("\r\n"))) + "'");
  }
  const std::size_t end = pending_.find("\r\n\r\n");
  if (end == std::string::npos)
    return pending_.size() > kMaxHead ? refuse("the headers of its HTTP reply are too long") : false;
  const std::string_view head = std::string_view(pending_).substr(0, end);
  const auto status = head.size() < 12 ? std::nullopt : number(head.substr(9, 3), 10);
  if (!status || *status < 100) return refuse("its reply has no HTTP status");
  reply_.status = static_cast<int>(*status);
  const std::string_view lines = head.substr(std::min(head.find(kLineEnd), head.size()));
  const bool is_chunked = equal_without_case(header(lines, "transfer-encoding"), "chunked");
  const std::string_view length = header(lines, "content-length");
  const auto size = number(length, 10);
  const bool has_size = !is_chunked && !length.empty();
  pending_.erase(0, end + 4);
  if (*status < 200) return true;  // "100 Continue": the reply follows
  if (has_size && !size) return refuse("the Content-Length of its reply is not a number");
  if (has_size && *size > kMaxHttpReply) return refuse("its reply is too long for etcd");
  expected_ = size.value_or(0);
  part_ = is_chunked ? Part::kChunkSize : has_size || *status == 204 ? Part::kFixedLength : Part::kUntilEnd;
  return true;
}

bool HttpReplyReader::read_fixed_length() {
  if (pending_.size() < expected_) return false;
  reply_.body = pending_.substr(0, expected_);
  part_ = Part::kDone;
  return false;
}

bool HttpReplyReader::read_until_end() {
  reply_.body += std::exchange(pending_, "");
  return reply_.body.size() > kMaxHttpReply ? refuse("its reply is too long for etcd") : false;
}

bool HttpReplyReader::read_chunk_size() {
  const std::size_t end = pending_.find(kLineEnd);
  if (end == std::string::npos)
    return pending_.size() > kMaxChunkLine ? refuse("its HTTP reply has an invalid chunk") : false;
  const std::string_view line = std::string_view(pending_).substr(0, end);
  const auto size = number(trimmed(line.substr(0, line.find(';'))), 16);
  if (!size) return refuse("its HTTP reply has an invalid chunk");
  if (*size > kMaxHttpReply - reply_.body.size()) return refuse("its reply is too long for etcd");
  expected_ = *size;
  pending_.erase(0, end + kLineEnd.size());
  part_ = expected_ == 0 ? Part::kTrailer : Part::kChunk;
  return true;
}

bool HttpReplyReader::read_chunk() {
  if (pending_.size() < expected_ + kLineEnd.size()) return false;
  if (pending_.compare(expected_, kLineEnd.size(), kLineEnd) != 0) return refuse("its HTTP reply has an invalid chunk");
  reply_.body.append(pending_, 0, expected_);
  pending_.erase(0, expected_ + kLineEnd.size());
  part_ = Part::kChunkSize;
  return true;
}

bool HttpReplyReader::read_trailer() {
  const std::size_t end = pending_.find(kLineEnd);
  if (end == std::string::npos)
    return pending_.size() > kMaxHead ? refuse("its HTTP reply has an invalid trailer") : false;
  pending_.erase(0, end + kLineEnd.size());
  if (end == 0) part_ = Part::kDone;
  return end != 0;
}

HttpClient::HttpClient(EventLoop& loop, std::string host, std::uint16_t port, std::chrono::milliseconds time_limit)
    : loop_(loop), host_(std::move(host)), port_(port), time_limit_(time_limit) {}

HttpClient::~HttpClient() {
  close();
}

void HttpClient::close() {
  if (fd_) loop_.remove(fd_.get());
  fd_.reset();
  connector_.reset();
  timer_.cancel();
}

void HttpClient::ask(HttpRequest request, OnReply on_reply) {
  waiting_.push_back({std::move(request), std::move(on_reply)});
  if (waiting_.size() == 1) begin();
}

void HttpClient::cancel() {
  close();
  waiting_.clear();
}

void HttpClient::begin() {
  incoming_ = {};
  was_refused_ = false;
  was_other_protocol_ = false;
  outgoing_ = to_text(waiting_.front().request, host_ + ":" + std::to_string(port_));
  connector_ = std::make_unique<Connector>(loop_, known_address_.empty() ? host_ : known_address_, port_,
                                           [this](UniqueFd fd) { on_connected(std::move(fd)); });
  timer_.start_in(time_limit_, [this] {
    was_refused_ = !fd_ && connector_->was_refused();
    const std::string why = fd_ ? "it did not answer in time" : connector_->problem();
    fail(why.empty() ? "it could not be reached in time" : why);
  });
}

void HttpClient::on_connected(UniqueFd fd) {
  fd_ = std::move(fd);
  known_address_ = peer_address(fd_.get());
  own_address_ = own_address_of(fd_.get());
  loop_.add(fd_.get(), EPOLLIN | EPOLLOUT, [this](std::uint32_t events) { on_event(events); });
}

void HttpClient::on_event(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    const ssize_t sent = ::send(fd_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (sent > 0) outgoing_.erase(0, static_cast<std::size_t>(sent));
    if (outgoing_.empty()) loop_.change(fd_.get(), EPOLLIN);
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) receive();
}

void HttpClient::receive() {
  std::array<char, 16384> bytes;
  const ssize_t count = ::read(fd_.get(), bytes.data(), bytes.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count < 0) {
    fail(std::string("the connection broke: ") + std::strerror(errno));
  } else {
    finish(count == 0 ? incoming_.end() : incoming_.take({bytes.data(), static_cast<std::size_t>(count)}));
  }
}

void HttpClient::finish(HttpReplyReader::State state) {
  if (state == HttpReplyReader::State::kComplete) {
    problem_.clear();
    report_result(incoming_.reply());
  } else if (state == HttpReplyReader::State::kInvalid) {
    was_other_protocol_ = incoming_.is_other_protocol();
    fail(incoming_.problem());
  }
}

void HttpClient::fail(std::string problem) {
  known_address_.clear();
  problem_ = std::move(problem);
  report_result(std::nullopt);
}

void HttpClient::report_result(const std::optional<HttpReply>& reply) {
  close();
  const std::optional<HttpReply> kept = reply;  // the next request begins with another one
  const OnReply on_reply = std::move(waiting_.front().on_reply);
  waiting_.pop_front();
  if (!waiting_.empty()) begin();
  on_reply(kept);  // the callback may destroy this
}

}  // namespace launcher::elastic
