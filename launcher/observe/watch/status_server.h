// Answers requests of this user's other processes about the job, at a socket in the user's runtime folder.
#pragma once

#include <sys/epoll.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "launcher/observe/watch/reply_server.h"
#include "launcher/observe/watch/runtime_folder.h"
#include "launcher/os/system/event_loop.h"

namespace launcher {

inline constexpr std::chrono::seconds kStatusPause{1};

class StatusServer {
 public:
  // `pid` is in the name of the socket. A request is one line. If the socket cannot be made, problem() has the reason,
  // and the job continues.
  StatusServer(EventLoop& loop, pid_t pid, std::function<std::string(const std::string& request)> answer)
      : loop_(loop),
        server_(loop, {.is_whole = [](const std::string& request) { return request.ends_with('\n'); },
                       .answer = std::move(answer),
                       .same_user_only = true}) {
    listen(pid);
  }
  ~StatusServer() {
    if (!listener_) return;
    loop_.remove(listener_.get());
    ::unlink(path_.c_str());
  }
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  const std::string& problem() const { return problem_; }

 private:
  void listen(pid_t pid) {
    const std::string folder = runtime_folder();
    live_sockets(folder);  // removes sockets of ddpruns that were killed
    ListeningSocket socket = listen_in(folder, pid);
    problem_ = std::move(socket.problem);
    if (!socket.fd) return;
    path_ = std::move(socket.path);
    listener_ = std::move(socket.fd);
    loop_.add(listener_.get(), EPOLLIN, [this](std::uint32_t) { on_connection(); });
  }
  void on_connection() {
    if (server_.accept_from(listener_.get())) return;
    loop_.change(listener_.get(), 0);
    pause_.start_in(kStatusPause, [this] { loop_.change(listener_.get(), EPOLLIN); });
  }

  EventLoop& loop_;
  ReplyServer server_;
  std::string path_;
  std::string problem_;
  UniqueFd listener_;
  EventLoop::Timer pause_{loop_};
};

}  // namespace launcher
