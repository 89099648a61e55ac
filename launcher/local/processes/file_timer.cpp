#include "launcher/local/processes/file_timer.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "launcher/os/system/host_name.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/signals.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

using nlohmann::json;

constexpr double kMaxWait = 3600;  // the clock is read again after this time
constexpr const char* kEnable = "TORCHELASTIC_ENABLE_FILE_TIMER";
constexpr const char* kTimerFile = "TORCHELASTIC_TIMER_FILE";

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string rank_text(pid_t pid) {
  const auto rank = variable_of(pid, "RANK");
  return (rank ? "rank " + *rank + ", " : "") + "process " + std::to_string(pid);
}

}  // namespace

std::optional<TimerRequest> parse_timer_request(std::string_view line) {
  const json root = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return std::nullopt;
  const auto number = [&root](const char* name) -> std::optional<double> {
    const auto found = root.find(name);
    if (found == root.end() || !found->is_number()) return std::nullopt;
    return found->get<double>();
  };
  const auto pid = number("pid");
  const auto expiration = number("expiration_time");
  const auto signal = number("signal");
  const auto scope = root.find("scope_id");
  if (!pid || !expiration || !signal || scope == root.end() || !scope->is_string()) return std::nullopt;
  if (*pid < 2 || *pid > INT_MAX || std::abs(*signal) > 64 || !std::isfinite(*expiration)) return std::nullopt;
  return TimerRequest{static_cast<pid_t>(*pid), scope->get<std::string>(), *expiration, static_cast<int>(*signal)};
}

FileTimer::FileTimer(EventLoop& loop, Messages& messages, std::string path)
    : loop_(loop), messages_(messages), path_(std::move(path)) {
  const auto refuse = [this](const std::string& why) {
    throw LaunchError(std::string(kTimerFile) + ": cannot create the named pipe " + path_ + ": " + why);
  };
  struct stat status {};
  if (::lstat(path_.c_str(), &status) == 0) {
    if (!S_ISFIFO(status.st_mode)) refuse("the file exists and is not a named pipe");
    // A pipe remains in the folder when its launcher is killed. Only a running launcher has it open for reading.
    if (UniqueFd(::open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC))) {
      refuse("another launcher reads from it; give each launcher on a host its own name");
    }
    ::unlink(path_.c_str());
  }
  if (::mkfifo(path_.c_str(), 0600) != 0) refuse(std::strerror(errno));
  // Opened for writing, too, so that there is no end of file when no rank has the pipe open.
  pipe_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!pipe_) {
    const int error = errno;
    ::unlink(path_.c_str());
    refuse(std::strerror(error));
  }
  loop_.add(pipe_.get(), EPOLLIN, [this](std::uint32_t) { on_readable(); });
}

FileTimer::~FileTimer() {
  forget_all();
  loop_.remove(pipe_.get());
  ::unlink(path_.c_str());
}

void FileTimer::forget_all() {
  timers_.clear();
  reasons_.clear();
  schedule();
}

std::string FileTimer::reason_for(pid_t pid) const {
  const auto found = reasons_.find(pid);
  return found == reasons_.end() ? "" : found->second;
}

void FileTimer::on_readable() {
  std::array<char, 65536> bytes{};
  const ssize_t count = ::read(pipe_.get(), bytes.data(), bytes.size());
  if (count <= 0) return;
  unfinished_.append(bytes.data(), static_cast<std::size_t>(count));
  std::size_t begin = 0;
  for (std::size_t end; (end = unfinished_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    take_line(std::string_view(unfinished_).substr(begin, end - begin));
  }
  unfinished_.erase(0, begin);
  if (unfinished_.size() > PIPE_BUF) {  // a client writes each request with one write() of at most PIPE_BUF bytes
    take_line(unfinished_);
    unfinished_.clear();
  }
  schedule();
}

void FileTimer::take_line(std::string_view line) {
  auto request = parse_timer_request(line);
  if (!request) {
    if (!has_reported_) {
      messages_.print("file timer " + path_ + ": expected requests of FileTimerClient, got '" +
                      printable(std::string(line.substr(0, 100))) + "'; such lines are ignored");
    }
    has_reported_ = true;
    return;
  }
  const auto key = std::pair(request->pid, request->scope);
  if (request->expiration < 0) {
    timers_.erase(key);
    return;
  }
  // The start time is kept because the number may belong to another process when the timer expires.
  if (const auto process = identify(request->pid)) timers_.insert_or_assign(key, Timer{std::move(*request), *process});
}

void FileTimer::schedule() {
  next_.cancel();
  if (timers_.empty()) return;
  const auto first = std::min_element(timers_.begin(), timers_.end(), [](const auto& a, const auto& b) {
    return a.second.request.expiration < b.second.request.expiration;
  });
  const double wait = std::clamp(first->second.request.expiration - seconds_since_epoch(), 0.0, kMaxWait);
  next_.start_in(std::chrono::milliseconds(static_cast<long>(std::ceil(wait * 1000))), [this] { expire(); });
}

void FileTimer::expire() {
  next_.cancel();
  const double now = seconds_since_epoch();
  std::vector<Timer> expired;
  for (const auto& [key, timer] : timers_) {
    if (timer.request.expiration <= now) expired.push_back(timer);
  }
  std::sort(expired.begin(), expired.end(),
            [](const Timer& a, const Timer& b) { return a.request.expiration < b.request.expiration; });
  const std::vector<ProcessIdentity> own =
      expired.empty() ? std::vector<ProcessIdentity>() : descendants_of(::getpid());
  for (const Timer& timer : expired) {
    if (!timers_.contains({timer.request.pid, timer.request.scope}))
      continue;  // its process was killed by an earlier timer in this loop
    end_process(timer, own);
  }
  schedule();
}

// Signals only processes in `own`, those of this job, because a request could name any process.
void FileTimer::end_process(const Timer& timer, const std::vector<ProcessIdentity>& own) {
  const TimerRequest request = timer.request;
  timers_.erase({request.pid, request.scope});
  const bool is_own = std::any_of(own.begin(), own.end(), [&](const ProcessIdentity& process) {
    return process.pid == timer.process.pid && process.start_time == timer.process.start_time;
  });
  if (!is_own) return;
  const std::string scope = "file timer '" + printable(request.scope) + "'";
  const std::string what = rank_text(request.pid) + ": its " + scope + " expired";
  if (request.signal <= 0) {
    messages_.print(what + "; the request has no signal, so none is sent");
    return;
  }
  messages_.print(what + "; ddprun sends it " + signal_name(request.signal));
  reasons_[request.pid] = "ddprun sent " + signal_name(request.signal) + " because the " + scope + " expired";
  signal_process(timer.process, request.signal);
  std::erase_if(timers_, [&](const auto& entry) { return entry.first.first == request.pid; });
}

std::unique_ptr<FileTimer> make_file_timer(EventLoop& loop, Messages& messages, const std::string& folder) {
  const char* enabled = std::getenv(kEnable);
  if (enabled == nullptr || std::string_view(enabled) != "1") return nullptr;
  const char* given = std::getenv(kTimerFile);
  if (given != nullptr && *given != '\0') {
    return std::make_unique<FileTimer>(loop, messages, std::filesystem::absolute(given).string());
  }
  std::string place = folder;
  if (place.empty()) {
    const char* temporary = std::getenv("TMPDIR");
    place = temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
  }
  const std::filesystem::path path = std::filesystem::absolute(place) / ("watchdog_timer_" + random_id());
  return std::make_unique<FileTimer>(loop, messages, path.string());
}

}  // namespace launcher
