#include "launcher/observe/watch/reply_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "launcher/os/network/tcp_socket.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxSessions = 16;
constexpr std::size_t kMaxRequestBytes = 8192;
constexpr auto kReplyTimeout = 10s;
// A client that sends more bytes than this after the request is disconnected.
constexpr std::size_t kMaxDiscardedBytes = 1 << 20;

bool is_same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

}  // namespace

ReplyServer::ReplyServer(EventLoop& loop, RequestHandler handler) : loop_(loop), handler_(std::move(handler)) {}

ReplyServer::~ReplyServer() {
  while (!sessions_.empty()) end(sessions_.begin()->first);
}

bool ReplyServer::accept_from(int listener) {
  Accepted accepted = accept_connection(listener);
  UniqueFd fd = std::move(accepted.fd);
  if (!fd) return !accepted.is_out_of_resources;
  if (handler_.same_user_only && !is_same_user(fd.get())) return true;
  // A client that connects and sends nothing must not exclude other clients.
  if (sessions_.size() >= kMaxSessions) end_oldest();
  const int number = fd.get();
  const auto deadline = loop_.call_at(EventLoop::Clock::now() + kReplyTimeout, [this, number] { on_deadline(number); });
  sessions_.emplace(number, Session{.fd = std::move(fd), .deadline = deadline});
  loop_.add(number, EPOLLIN, [this, number](std::uint32_t) { on_event(number); });
  return true;
}

void ReplyServer::on_event(int fd) {
  Session& session = sessions_.at(fd);
  if (session.is_answered) {
    discard(session);
  } else if (session.answer.empty()) {
    read_request(session);
  } else {
    write_answer(session);
  }
}

void ReplyServer::read_request(Session& session) {
  std::array<char, 2048> buffer{};
  const ssize_t count = ::read(session.fd.get(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return end(session.fd.get());
  session.request.append(buffer.data(), static_cast<std::size_t>(count));
  if (handler_.is_whole(session.request)) {
    begin_answer(session, handler_.answer(session.request));
  } else if (session.request.size() > kMaxRequestBytes) {
    begin_answer(session, handler_.too_long);
  }
}

void ReplyServer::begin_answer(Session& session, std::string answer) {
  if (answer.empty()) return end(session.fd.get());
  session.answer = std::move(answer);
  loop_.change(session.fd.get(), EPOLLOUT);
}

// close() with unread bytes would discard the answer, so the server waits until the client closes first.
void ReplyServer::discard(Session& session) {
  std::array<char, 16384> buffer{};
  const ssize_t count = ::read(session.fd.get(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  session.discarded += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
  if (count <= 0 || session.discarded > kMaxDiscardedBytes) end(session.fd.get());
}

void ReplyServer::on_deadline(int fd) {
  const Session& session = sessions_.at(fd);
  const bool is_waited_for = session.answer.empty() && !session.is_answered && !handler_.too_late.empty();
  if (is_waited_for) {
    [[maybe_unused]] const ssize_t sent =
        ::send(fd, handler_.too_late.data(), handler_.too_late.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  loop_.remove(fd);
  sessions_.erase(fd);
}

void ReplyServer::write_answer(Session& session) {
  const ssize_t count = ::send(session.fd.get(), session.answer.data(), session.answer.size(), MSG_NOSIGNAL);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count > 0) session.answer.erase(0, static_cast<std::size_t>(count));
  if (count < 0) return end(session.fd.get());
  if (!session.answer.empty()) return;
  session.is_answered = true;
  ::shutdown(session.fd.get(), SHUT_WR);
  loop_.change(session.fd.get(), EPOLLIN);
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
