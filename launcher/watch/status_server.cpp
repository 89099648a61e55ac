#include "launcher/watch/status_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "launcher/watch/runtime_folder.h"

namespace launcher {
namespace {

constexpr int kBacklog = 16;
constexpr std::chrono::seconds kPause{1};

}  // namespace

StatusServer::StatusServer(EventLoop& loop, pid_t pid, std::function<std::string(const std::string& question)> answer)
    : loop_(loop),
      server_(loop, {.is_whole = [](const std::string& question) { return question.ends_with('\n'); },
                     .answer = std::move(answer),
                     .for_this_user = true}) {
  listen(pid);
}

StatusServer::~StatusServer() {
  if (!listener_) return;
  if (pause_) loop_.cancel(*pause_);
  loop_.remove(listener_.get());
  ::unlink(path_.c_str());
}

void StatusServer::listen(pid_t pid) {
  const std::string folder = runtime_folder();
  living_sockets(folder);  // removes those of ddpruns that were killed
  path_ = socket_in(folder, pid);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (!make_runtime_folder(folder) || path_.size() >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return;
  // There is no moment at which others could open it.
  const mode_t mask = ::umask(0177);
  const bool is_bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::umask(mask);
  if (!is_bound || ::listen(fd.get(), kBacklog) != 0) return;
  listener_ = std::move(fd);
  loop_.add(listener_.get(), EPOLLIN, [this](std::uint32_t) { on_connection(); });
}

void StatusServer::on_connection() {
  if (server_.accept_from(listener_.get())) return;
  loop_.change(listener_.get(), 0);
  pause_ = loop_.call_at(EventLoop::Clock::now() + kPause, [this] {
    pause_.reset();
    loop_.change(listener_.get(), EPOLLIN);
  });
}

}  // namespace launcher
