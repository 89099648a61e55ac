// Answers short questions on a listening socket, one for each connection, without ever making the event loop wait.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {

struct Questions {
  std::function<bool(const std::string& question)> is_whole{};
  std::function<std::string(const std::string& question)> answer{};
  // The answer to a question that is too long, and to one that is not all there in time; empty: the connection is
  // closed.
  std::string too_long{};
  std::string too_late{};
  // Only this user and root are answered.
  bool for_this_user = false;
};

class ReplyServer {
 public:
  // `loop` must outlive this.
  ReplyServer(EventLoop& loop, Questions questions);
  ~ReplyServer();
  ReplyServer(const ReplyServer&) = delete;
  ReplyServer& operator=(const ReplyServer&) = delete;

  // A connection waits at `listener`. False when it could not be taken for want of descriptors or memory, and should
  // not be tried again at once.
  bool accept_from(int listener);

 private:
  struct Session {
    UniqueFd fd{};
    std::string question{};
    std::string answer{};
    bool is_answered = false;   // nothing more is sent, and what still comes is not read as a question
    std::size_t discarded = 0;  // bytes that came after the question
    EventLoop::TimerId deadline{};
  };
  void on_event(int fd);
  void read_question(Session& session);
  void begin_answer(Session& session, std::string answer);
  void write_answer(Session& session);
  void discard(Session& session);
  void on_deadline(int fd);
  void end_oldest();
  void end(int fd);

  EventLoop& loop_;
  Questions questions_;
  std::map<int, Session> sessions_;
};

}  // namespace launcher
