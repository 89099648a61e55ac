#include "launcher/remote/input_feed.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "launcher/os/system/launch_error.h"

namespace launcher::remote {
namespace {

constexpr std::size_t kMostUnderWay = std::size_t{256} << 10;
constexpr std::size_t kInputBytes = std::size_t{32} << 10;

}  // namespace

InputFeed::InputFeed(EventLoop& loop, const std::vector<std::uint32_t>& hosts,
                     std::function<void(const std::string&)> send)
    : loop_(loop), send_(std::move(send)), source_(STDIN_FILENO) {
  for (const std::uint32_t host : hosts) under_way_[host] = 0;
  if (::isatty(STDIN_FILENO) == 1) {
    Pipe pipe = make_pipe();
    typed_ = std::move(pipe.reader);
    source_ = typed_.get();
    terminal_.emplace(loop_, std::move(pipe.writer));
  }
  watch();
}

InputFeed::~InputFeed() {
  finish();
}

void InputFeed::watch() {
  const bool has_room =
      std::all_of(under_way_.begin(), under_way_.end(), [](const auto& host) { return host.second < kMostUnderWay; });
  const bool on = !is_over_ && has_room;
  if (on && is_file_ && !timer_.is_running()) {
    timer_.start_in({}, [this] { read(); });
  }
  if (on == is_watched_ || is_file_) return;
  if (!on) {
    loop_.remove(source_);
    is_watched_ = false;
    return;
  }
  try {
    loop_.add(source_, EPOLLIN, [this](std::uint32_t) { read(); });
    is_watched_ = true;
  } catch (const LaunchError&) {
    is_file_ = true;
    watch();
  }
}

void InputFeed::read() {
  std::array<char, kInputBytes> bytes;
  const ssize_t count = ::read(source_, bytes.data(), bytes.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
    watch();
    return;
  }
  if (count <= 0) {
    finish();
    send_("");
    return;
  }
  for (auto& [host, under_way] : under_way_) under_way += static_cast<std::size_t>(count);
  send_(std::string(bytes.data(), static_cast<std::size_t>(count)));
  watch();
}

void InputFeed::taken(std::uint32_t host, std::size_t bytes) {
  if (const auto found = under_way_.find(host); found != under_way_.end()) {
    found->second -= std::min(found->second, bytes);
    watch();
  }
}

void InputFeed::closed(std::uint32_t host) {
  if (under_way_.erase(host) == 0) return;
  if (under_way_.empty()) {
    finish();
  } else {
    watch();
  }
}

void InputFeed::resume() {
  if (terminal_) terminal_->resume();
}

void InputFeed::finish() {
  is_over_ = true;
  if (is_watched_) loop_.remove(source_);
  is_watched_ = false;
  timer_.cancel();
  terminal_.reset();
}

}  // namespace launcher::remote
