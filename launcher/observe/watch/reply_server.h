// Answers short requests on a listening socket, one for each connection, without blocking the event loop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {

struct RequestHandler {
  std::function<bool(const std::string& request)> is_whole{};
  std::function<std::string(const std::string& request)> answer{};
  // The answer to a request that is too long, and to one that does not arrive completely in time; empty: the
  // connection is closed.
  std::string too_long{};
  std::string too_late{};
  // Only this user and root get an answer.
  bool same_user_only = false;
};

class ReplyServer {
 public:
  // `loop` must outlive this.
  ReplyServer(EventLoop& loop, RequestHandler handler);
  ~ReplyServer();
  ReplyServer(const ReplyServer&) = delete;
  ReplyServer& operator=(const ReplyServer&) = delete;

  // Accepts a connection that waits at `listener`. Returns false when there were too few descriptors or too little
  // memory; then the caller should not try again at once.
  bool accept_from(int listener);

 private:
  struct Session {
    UniqueFd fd{};
    std::string request{};
    std::string answer{};
    bool is_answered = false;   // the answer was sent, and further bytes are not read as a request
    std::size_t discarded = 0;  // bytes that came after the request
    EventLoop::TimerId deadline{};
  };
  void on_event(int fd);
  void read_request(Session& session);
  void begin_answer(Session& session, std::string answer);
  void write_answer(Session& session);
  void discard(Session& session);
  void on_deadline(int fd);
  void end_oldest();
  void end(int fd);

  EventLoop& loop_;
  RequestHandler handler_;
  std::map<int, Session> sessions_;
};

}  // namespace launcher
