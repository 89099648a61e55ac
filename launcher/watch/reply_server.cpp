#include "launcher/watch/reply_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

namespace launcher {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostSessions = 16;
constexpr std::size_t kLongestQuestion = 8192;
constexpr auto kReplyPatience = 10s;

bool is_this_users(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

}  // namespace

ReplyServer::ReplyServer(EventLoop& loop, Questions questions) : loop_(loop), questions_(std::move(questions)) {}

ReplyServer::~ReplyServer() {
  while (!sessions_.empty()) end(sessions_.begin()->first);
}

bool ReplyServer::accept_from(int listener) {
  UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd) return errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS;
  if (questions_.for_this_user && !is_this_users(fd.get())) return true;
  // Who comes and says nothing must keep nobody out.
  if (sessions_.size() >= kMostSessions) end_oldest();
  const int number = fd.get();
  const auto deadline = loop_.call_at(EventLoop::Clock::now() + kReplyPatience, [this, number] {
    loop_.remove(number);
    sessions_.erase(number);
  });
  sessions_.emplace(number, Session{.fd = std::move(fd), .deadline = deadline});
  loop_.add(number, EPOLLIN, [this, number](std::uint32_t) { on_event(number); });
  return true;
}

void ReplyServer::on_event(int fd) {
  Session& session = sessions_.at(fd);
  if (session.answer.empty()) {
    read_question(session);
  } else {
    write_answer(session);
  }
}

void ReplyServer::read_question(Session& session) {
  std::array<char, 2048> buffer{};
  const ssize_t count = ::read(session.fd.get(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0 || session.question.size() + static_cast<std::size_t>(count) > kLongestQuestion) {
    return end(session.fd.get());
  }
  session.question.append(buffer.data(), static_cast<std::size_t>(count));
  if (!questions_.is_whole(session.question)) return;
  session.answer = questions_.answer(session.question);
  loop_.change(session.fd.get(), EPOLLOUT);
}

void ReplyServer::write_answer(Session& session) {
  const ssize_t count = ::send(session.fd.get(), session.answer.data(), session.answer.size(), MSG_NOSIGNAL);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count > 0) session.answer.erase(0, static_cast<std::size_t>(count));
  if (count < 0 || session.answer.empty()) end(session.fd.get());
}

void ReplyServer::end_oldest() {
  const auto oldest = std::min_element(sessions_.begin(), sessions_.end(), [](const auto& a, const auto& b) {
    return a.second.deadline < b.second.deadline;
  });
  end(oldest->first);
}

void ReplyServer::end(int fd) {
  const auto session = sessions_.find(fd);
  loop_.cancel(session->second.deadline);
  loop_.remove(fd);
  sessions_.erase(session);
}

}  // namespace launcher
