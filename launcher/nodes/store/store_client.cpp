#include "launcher/nodes/store/store_client.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "launcher/nodes/store/other_service.h"
#include "launcher/nodes/store/request_parser.h"
#include "launcher/nodes/store/wire_format.h"

namespace launcher::store {
namespace {

// More than any launcher writes; a greater length means that the other end is no store.
constexpr std::uint64_t kMaxReplyBytes = 1 << 20;
// For the rest of the other service's first line, and as much of it.
constexpr std::chrono::milliseconds kOtherServiceWait{500};
constexpr std::size_t kOtherServiceBytes = 256;

std::string begin(Opcode opcode) {
  return std::string(1, static_cast<char>(opcode));
}

std::string begin(Opcode opcode, std::string_view key) {
  std::string bytes = begin(opcode);
  append_text(bytes, key);
  return bytes;
}

}  // namespace

StoreClient::StoreClient(EventLoop& loop, std::string host, std::uint16_t port, OnDone on_lost,
                         std::chrono::milliseconds early_pause)
    : loop_(loop),
      on_lost_(std::move(on_lost)),
      connector_(
          loop, std::move(host), port, [this](UniqueFd fd) { on_connected(std::move(fd)); }, early_pause) {
  outgoing_ = begin(Opcode::kValidate);
  append_integer(outgoing_, kValidationNumber);
}

StoreClient::~StoreClient() {
  if (timer_) loop_.cancel(*timer_);
  if (fd_) loop_.remove(fd_.get());
}

void StoreClient::call_in(EventLoop::Clock::duration time, std::function<void()> action) {
  if (timer_) loop_.cancel(*timer_);
  timer_ = loop_.call_at(EventLoop::Clock::now() + time, [this, action = std::move(action)] {
    timer_.reset();
    action();
  });
}

void StoreClient::provoke() {
  const bool waits_for_check =
      state_ == State::kConnected && incoming_.empty() && !replies_.empty() && replies_.front().on_answer;
  if (!waits_for_check) return;
  has_provoked_ = true;
  request("\r\n\r\n");
}

void StoreClient::on_connected(UniqueFd fd) {
  fd_ = std::move(fd);
  state_ = State::kConnected;
  loop_.add(fd_.get(), EPOLLIN, [this](std::uint32_t events) { on_event(events); });
  if (silence_) call_in(*silence_, [this] { provoke(); });
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
    if (sent < 0) break;  // full, or broken, which the loop reports
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
  if (state_ != State::kOtherService && (is_no_reply() || has_provoked_)) {
    state_ = State::kOtherService;
    call_in(kOtherServiceWait, [this] { read_other_service(); });
  }
  if (state_ == State::kConnected) {
    parse_replies();
  } else if (incoming_.size() >= kOtherServiceBytes || incoming_.find('\n') != std::string::npos) {
    read_other_service();
  }
}

// Whether what has arrived cannot be the answer to the first request: a byte that is 0 or 1, alone where nothing else
// was asked, or a text of a length that a store would send.
bool StoreClient::is_no_reply() const {
  if (incoming_.empty() || replies_.empty()) return false;
  const Reply& reply = replies_.front();
  if (reply.on_number) return false;
  if (reply.on_text) return incoming_.size() >= 8 && read_integer<std::uint64_t>(incoming_) > kMaxReplyBytes;
  return incoming_.front() > 1 || incoming_.front() < 0 || (replies_.size() == 1 && incoming_.size() > 1);
}

void StoreClient::read_other_service() {
  // A single byte of a check that was merely slow says nothing against a store.
  const bool is_late_answer = has_provoked_ && incoming_.size() == 1 && (incoming_[0] == 0 || incoming_[0] == 1);
  if (!is_late_answer) other_service_ = describe_service(incoming_);
  lose();
}

void StoreClient::lose() {
  if (timer_) loop_.cancel(*timer_);
  timer_.reset();
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
  std::string bytes = begin(Opcode::kSet, key);
  append_text(bytes, value);
  request(bytes);
}

void StoreClient::add(std::string_view key, std::int64_t increment, OnNumber on_sum) {
  std::string bytes = begin(Opcode::kAdd, key);
  append_integer(bytes, increment);
  replies_.push_back({.on_number = std::move(on_sum)});
  request(bytes);
}

void StoreClient::compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                              OnText on_value) {
  std::string bytes = begin(Opcode::kCompareSet, key);
  append_text(bytes, expected);
  append_text(bytes, desired);
  replies_.push_back({.on_text = std::move(on_value)});
  request(bytes);
}

void StoreClient::get(std::string_view key, OnText on_value) {
  replies_.push_back({.on_text = std::move(on_value)});
  request(begin(Opcode::kGet, key));
}

void StoreClient::remove_and_leave(std::string_view key) {
  request(begin(Opcode::kDelete, key));
}

void StoreClient::ask(Opcode opcode, std::string_view key) {
  std::string bytes = begin(opcode);
  append_integer(bytes, std::uint64_t{1});
  append_text(bytes, key);
  request(bytes);
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
