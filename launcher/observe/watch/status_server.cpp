#include "launcher/observe/watch/status_server.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "launcher/observe/watch/runtime_folder.h"

namespace launcher {
namespace {

constexpr std::chrono::seconds kStatusPause{1};

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
  ListeningSocket socket = listen_in(folder, pid);
  problem_ = std::move(socket.problem);
  if (!socket.fd) return;
  path_ = std::move(socket.path);
  listener_ = std::move(socket.fd);
  loop_.add(listener_.get(), EPOLLIN, [this](std::uint32_t) { on_connection(); });
}

void StatusServer::on_connection() {
  if (server_.accept_from(listener_.get())) return;
  loop_.change(listener_.get(), 0);
  pause_ = loop_.call_at(EventLoop::Clock::now() + kStatusPause, [this] {
    pause_.reset();
    loop_.change(listener_.get(), EPOLLIN);
  });
}

}  // namespace launcher
