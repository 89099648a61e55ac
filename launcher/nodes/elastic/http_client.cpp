#include "launcher/nodes/elastic/http_client.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "launcher/os/network/tcp_socket.h"

namespace launcher::elastic {
namespace {

std::string own_address_of(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) return "";
  return host_in(address);
}

}  // namespace

HttpClient::HttpClient(EventLoop& loop, std::string host, std::uint16_t port, std::chrono::milliseconds time_limit)
    : loop_(loop), host_(std::move(host)), port_(port), time_limit_(time_limit) {}

HttpClient::~HttpClient() {
  close();
}

void HttpClient::close() {
  if (fd_) loop_.remove(fd_.get());
  fd_.reset();
  connector_.reset();
  if (timer_) loop_.cancel(*timer_);
  timer_.reset();
}

void HttpClient::ask(HttpRequest request, OnReply on_reply) {
  waiting_.push_back({std::move(request), std::move(on_reply)});
  if (waiting_.size() == 1) begin();
}

void HttpClient::cancel() {
  close();
  waiting_.clear();
}

void HttpClient::begin() {
  incoming_ = {};
  was_refused_ = false;
  outgoing_ = to_text(waiting_.front().request, host_ + ":" + std::to_string(port_));
  connector_ = std::make_unique<Connector>(loop_, known_address_.empty() ? host_ : known_address_, port_,
                                           [this](UniqueFd fd) { on_connected(std::move(fd)); });
  timer_ = loop_.call_at(EventLoop::Clock::now() + time_limit_, [this] {
    timer_.reset();
    was_refused_ = !fd_ && connector_->was_refused();
    const std::string why = fd_ ? "it did not answer in time" : connector_->problem();
    fail(why.empty() ? "it could not be reached in time" : why);
  });
}

void HttpClient::on_connected(UniqueFd fd) {
  fd_ = std::move(fd);
  known_address_ = peer_address(fd_.get());
  own_address_ = own_address_of(fd_.get());
  loop_.add(fd_.get(), EPOLLIN | EPOLLOUT, [this](std::uint32_t events) { on_event(events); });
}

void HttpClient::on_event(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    const ssize_t sent = ::send(fd_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL);
    if (sent > 0) outgoing_.erase(0, static_cast<std::size_t>(sent));
    if (outgoing_.empty()) loop_.change(fd_.get(), EPOLLIN);
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) receive();
}

void HttpClient::receive() {
  std::array<char, 16384> bytes;
  const ssize_t count = ::read(fd_.get(), bytes.data(), bytes.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count < 0) {
    fail(std::string("the connection broke: ") + std::strerror(errno));
  } else {
    finish(count == 0 ? incoming_.end() : incoming_.take({bytes.data(), static_cast<std::size_t>(count)}));
  }
}

void HttpClient::finish(HttpReplyReader::State state) {
  if (state == HttpReplyReader::State::kComplete) {
    problem_.clear();
    conclude(incoming_.reply());
  } else if (state == HttpReplyReader::State::kInvalid) {
    fail(incoming_.problem());
  }
}

void HttpClient::fail(std::string problem) {
  known_address_.clear();
  problem_ = std::move(problem);
  conclude(std::nullopt);
}

void HttpClient::conclude(const std::optional<HttpReply>& reply) {
  close();
  const std::optional<HttpReply> kept = reply;  // the next request begins with another one
  const OnReply on_reply = std::move(waiting_.front().on_reply);
  waiting_.pop_front();
  if (!waiting_.empty()) begin();
  on_reply(kept);  // may end this
}

}  // namespace launcher::elastic
