// Tells this user's other processes what the job is doing, at a socket in the user's runtime folder.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "launcher/observe/watch/reply_server.h"
#include "launcher/os/system/event_loop.h"

namespace launcher {

class StatusServer {
 public:
  // `pid` names the socket; a question is one line. Where there can be no socket, nobody is told anything, problem()
  // says why, and no job fails for it.
  StatusServer(EventLoop& loop, pid_t pid, std::function<std::string(const std::string& question)> answer);
  ~StatusServer();
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  const std::string& problem() const { return problem_; }

 private:
  void listen(pid_t pid);
  void on_connection();

  EventLoop& loop_;
  ReplyServer server_;
  std::string path_;
  std::string problem_;
  UniqueFd listener_;
  std::optional<EventLoop::TimerId> pause_;
};

}  // namespace launcher
