#include "launcher/nodes/store/store_client.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "launcher/os/system/utf8.h"

namespace launcher::store {
namespace {

constexpr std::size_t kMaxQuotedBytes = 60;
constexpr std::size_t kMaxNumberBytes = 8;

struct Beginning {
  std::string_view bytes;
  std::string_view name;
};

// The first bytes that servers of each protocol send, by themselves or to a request that they do not understand.
constexpr std::array kBeginnings = std::to_array<Beginning>({
    {"SSH-", "an SSH server"},
    {"HTTP/", "an HTTP server"},
    {"<!DOCTYPE", "an HTTP server"},
    {"<html", "an HTTP server"},
    {"<HTML", "an HTTP server"},
    {"-ERR", "a Redis or POP3 server"},
    {"-NOAUTH", "a Redis server"},
    {"-DENIED", "a Redis server"},
    {"+OK", "a POP3 server"},
    {"* OK", "an IMAP server"},
    {"RFB ", "a VNC server"},
    {"ERROR\r\n", "a memcached server"},
    {"AMQP", "an AMQP server"},
    {"INFO {", "a NATS server"},
});

std::string_view first_line(std::string_view bytes) {
  return bytes.substr(0, bytes.find_first_of("\r\n"));
}

// Records of TLS: a kind, the version 3.x, a length.
bool is_tls(std::string_view bytes) {
  return bytes.size() >= 3 && bytes[0] >= 0x14 && bytes[0] <= 0x17 && bytes[1] == 3 && bytes[2] <= 4;
}

// A SETTINGS frame of HTTP/2: its length, the kind 4, no flag or ACK, stream 0.
bool is_http2(std::string_view bytes) {
  return bytes.size() >= 9 && bytes[0] == 0 && bytes[1] == 0 && bytes[3] == 4 &&
         static_cast<unsigned char>(bytes[4]) <= 1 && bytes.substr(5, 4) == std::string_view("\0\0\0\0", 4);
}

// A line such as "220 mail.example.org ESMTP": FTP and SMTP servers send it first.
bool has_reply_code(std::string_view line) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  return line.size() >= 4 && std::all_of(line.begin(), line.begin() + 3, is_digit) &&
         (line[3] == ' ' || line[3] == '-');
}

// A packet of MySQL: its length in three bytes, number 0, protocol 10.
bool is_mysql(std::string_view bytes) {
  return bytes.size() >= 6 && bytes[1] == 0 && bytes[2] == 0 && bytes[3] == 0 && bytes[4] == 10 &&
         std::isdigit(static_cast<unsigned char>(bytes[5])) != 0;
}

std::string quoted(std::string_view line) {
  return " (" + printable(beginning(line, kMaxQuotedBytes)) + ")";
}

bool is_text(std::string_view line) {
  return !line.empty() && std::all_of(line.begin(), line.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7f;
  });
}

std::string in_hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes.substr(0, kMaxNumberBytes)) {
    std::array<char, 8> shown{};
    std::snprintf(shown.data(), shown.size(), "%s0x%02x", text.empty() ? "" : " ",
                  static_cast<unsigned>(static_cast<std::uint8_t>(byte)));
    text += shown.data();
  }
  return text + (bytes.size() > kMaxNumberBytes ? " ..." : "");
}

// More than any launcher writes. A greater length means that the other end is not a store.
constexpr std::uint64_t kMaxReplyBytes = 1 << 20;
// The limits, in time and bytes, for the rest of another service's first line.
constexpr std::chrono::milliseconds kOtherServiceWait{500};
constexpr std::size_t kOtherServiceBytes = 256;

}  // namespace

std::string describe_service(std::string_view bytes) {
  const std::string_view line = first_line(bytes);
  for (const auto& [start, name] : kBeginnings) {
    if (bytes.starts_with(start)) return std::string(name) + quoted(line);
  }
  if (is_tls(bytes)) return "a TLS server (HTTPS or another protocol inside TLS)";
  if (is_http2(bytes)) return "an HTTP/2 server (gRPC or another one)";
  if (is_mysql(bytes)) return "a MySQL server";
  if (has_reply_code(line)) return "an SMTP or FTP server" + quoted(line);
  if (is_text(line)) return "another program, which sent '" + printable(beginning(line, kMaxQuotedBytes)) + "'";
  return "another program, which sent " + in_hexadecimal(bytes);
}

StoreClient::StoreClient(EventLoop& loop, std::string host, std::uint16_t port, OnDone on_lost,
                         std::chrono::milliseconds early_pause)
    : loop_(loop),
      on_lost_(std::move(on_lost)),
      connector_(
          loop, std::move(host), port, [this](UniqueFd fd) { on_connected(std::move(fd)); }, early_pause) {
  outgoing_ = request_bytes(Opcode::kValidate);
  append_integer(outgoing_, kValidationNumber);
}

StoreClient::~StoreClient() {
  if (fd_) loop_.remove(fd_.get());
}

void StoreClient::send_probe() {
  const bool waits_for_check =
      state_ == State::kConnected && incoming_.empty() && !replies_.empty() && replies_.front().on_answer;
  if (!waits_for_check) return;
  has_probed_ = true;
  request("\r\n\r\n");
}

void StoreClient::on_connected(UniqueFd fd) {
  fd_ = std::move(fd);
  state_ = State::kConnected;
  loop_.add(fd_.get(), EPOLLIN, [this](std::uint32_t events) { on_event(events); });
  if (probe_delay_) timer_.start_in(*probe_delay_, [this] { send_probe(); });
  send_pending();
}

void StoreClient::request(std::string_view bytes) {
  outgoing_ += bytes;
  if (state_ == State::kConnected) send_pending();
}

void StoreClient::send_pending() {
  while (!outgoing_.empty()) {
    const ssize_t sent = ::send(fd_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) break;  // the buffer is full, or the connection is broken, which the event loop reports
    outgoing_.erase(0, static_cast<std::size_t>(sent));
  }
  loop_.change(fd_.get(), outgoing_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

void StoreClient::on_event(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) send_pending();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  std::array<char, 16384> bytes;
  const ssize_t count = ::read(fd_.get(), bytes.data(), bytes.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    state_ == State::kOtherService ? read_other_service() : lose();
    return;
  }
  incoming_.append(bytes.data(), static_cast<std::size_t>(count));
  if (state_ != State::kOtherService && (is_invalid_reply() || has_probed_)) {
    state_ = State::kOtherService;
    timer_.start_in(kOtherServiceWait, [this] { read_other_service(); });
  }
  if (state_ == State::kConnected) {
    parse_replies();
  } else if (incoming_.size() >= kOtherServiceBytes || incoming_.find('\n') != std::string::npos) {
    read_other_service();
  }
}

// True when the received bytes cannot be the answer to the first request. An answer is a byte that is 0 or 1, with
// nothing after it if there was only one request, or a text of a plausible length.
bool StoreClient::is_invalid_reply() const {
  if (incoming_.empty() || replies_.empty()) return false;
  const Reply& reply = replies_.front();
  if (reply.on_number) return false;
  if (reply.on_text) return incoming_.size() >= 8 && read_integer<std::uint64_t>(incoming_) > kMaxReplyBytes;
  return incoming_.front() > 1 || incoming_.front() < 0 || (replies_.size() == 1 && incoming_.size() > 1);
}

void StoreClient::read_other_service() {
  // A single byte may be the late answer of a slow store.
  const bool is_late_answer = has_probed_ && incoming_.size() == 1 && (incoming_[0] == 0 || incoming_[0] == 1);
  if (!is_late_answer) other_service_ = describe_service(incoming_);
  lose();
}

void StoreClient::lose() {
  timer_.cancel();
  loop_.remove(fd_.get());
  fd_.reset();
  state_ = State::kLost;
  replies_.clear();
  on_lost_();
}

void StoreClient::parse_replies() {
  while (!replies_.empty()) {
    const Reply& reply = replies_.front();
    if (reply.on_number) {
      if (incoming_.size() < 8) return;
      const auto number = read_integer<std::int64_t>(incoming_);
      incoming_.erase(0, 8);
      const Reply taken = std::move(replies_.front());
      replies_.pop_front();
      taken.on_number(number);
    } else if (reply.on_text) {
      if (incoming_.size() < 8) return;
      const auto length = read_integer<std::uint64_t>(incoming_);
      if (length > kMaxReplyBytes) {
        read_other_service();
        return;
      }
      if (incoming_.size() < 8 + length) return;
      std::string text = incoming_.substr(8, length);
      incoming_.erase(0, 8 + length);
      const Reply taken = std::move(replies_.front());
      replies_.pop_front();
      taken.on_text(std::move(text));
    } else {
      if (incoming_.empty()) return;
      const bool is_ready = incoming_.front() == 0;
      incoming_.erase(0, 1);
      const Reply taken = std::move(replies_.front());
      replies_.pop_front();
      if (taken.on_answer) {
        taken.on_answer(is_ready);
      } else {
        taken.on_done();
      }
    }
  }
}

void StoreClient::set(std::string_view key, std::string_view value) {
  std::string bytes = request_bytes(Opcode::kSet, key);
  append_text(bytes, value);
  request(bytes);
}

void StoreClient::add(std::string_view key, std::int64_t increment, OnNumber on_sum) {
  std::string bytes = request_bytes(Opcode::kAdd, key);
  append_integer(bytes, increment);
  replies_.push_back({.on_number = std::move(on_sum)});
  request(bytes);
}

void StoreClient::compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                              OnText on_value) {
  std::string bytes = request_bytes(Opcode::kCompareSet, key);
  append_text(bytes, expected);
  append_text(bytes, desired);
  replies_.push_back({.on_text = std::move(on_value)});
  request(bytes);
}

void StoreClient::get(std::string_view key, OnText on_value) {
  replies_.push_back({.on_text = std::move(on_value)});
  request(request_bytes(Opcode::kGet, key));
}

void StoreClient::remove_and_disconnect(std::string_view key) {
  request(request_bytes(Opcode::kDelete, key));
}

void StoreClient::ask(Opcode opcode, std::string_view key) {
  request(ddp::detail::store::request_bytes(opcode, std::vector{std::string(key)}));
}

void StoreClient::wait(std::string_view key, OnDone on_ready) {
  replies_.push_back({.on_done = std::move(on_ready)});
  ask(Opcode::kWait, key);
}

void StoreClient::check(std::string_view key, std::function<void(bool exists)> on_answer) {
  replies_.push_back({.on_answer = std::move(on_answer)});
  ask(Opcode::kCheck, key);
}

}  // namespace launcher::store
