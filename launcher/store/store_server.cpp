#include "launcher/store/store_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <optional>
#include <utility>

#include "launcher/network/tcp_socket.h"
#include "launcher/store/limits.h"
#include "launcher/store/reply_queue.h"
#include "launcher/store/wire_format.h"

namespace launcher::store {
namespace {

constexpr std::size_t kReadBytes = 64 << 10;
// Replies waiting for a slow reader before its requests are no longer read.
constexpr std::size_t kMaxPendingReplies = std::size_t{1} << 20;
// A connection may keep this much of a request unfinished, and of replies unread, in a full store, too: else nobody
// could read or delete anything.
constexpr std::size_t kFreeBytes = std::size_t{1} << 17;
// Refused connections are named one by one up to here: strangers must not flood the job's output.
constexpr std::size_t kMaxNamedRefusals = 8;
// Descriptors that connections leave for what ends the job: looking at processes, reading error files.
constexpr int kReservedDescriptors = 16;

}  // namespace

struct StoreServer::Connection {
  UniqueFd fd;
  std::uint16_t peer_port = 0;
  EventLoop::Clock::time_point accepted = EventLoop::Clock::now();
  RequestParser parser;
  ReplyQueue replies;
  Charge charge;  // for what it has not finished sending or reading
  std::uint32_t interest = EPOLLIN;
  bool known = false;             // has sent a valid request
  bool uses_store = false;        // one that asks the store for something
  std::optional<pid_t> owner;     // once looked for; 0: no process of this job
  bool requests_waiting = false;  // received but not answered: the replies before them are not taken
  bool broken = false;

  std::size_t held_bytes() const { return parser.held_bytes() + replies.own_bytes(); }
};

StoreServer::StoreServer(EventLoop& loop, Messages& messages, ServerOptions options)
    : loop_(loop),
      messages_(messages),
      options_(std::move(options)),
      descriptor_limit_(descriptor_limit()),
      listener_(loop, options_.where, options_.port, [this](int listener) { accept_all(listener); }),
      budget_(std::make_shared<MemoryBudget>(memory_limit())) {}

StoreServer::~StoreServer() {
  if (pause_) loop_.cancel(*pause_);
  for (const auto& [id, connection] : connections_) loop_.remove(connection->fd.get());
}

void StoreServer::accept_all(int listener) {
  // A bounded number in a row: a flood of connections must not keep the loop from the ranks.
  for (int i = 0; i < 64; ++i) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    UniqueFd fd(::accept4(listener, reinterpret_cast<sockaddr*>(&peer), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) pause_accepting();
      return;
    }
    // The kernel gives out the lowest free number, so a high one means that few are left: so many connections and no
    // more.
    if (fd.get() >= descriptor_limit_ - kReservedDescriptors) capacity_ = std::min(capacity_, connections_.size());
    try {
      add_connection(std::move(fd), port_in(peer));
    } catch (const std::exception&) {  // no memory, or no more descriptors can be watched
      pause_accepting();
      return;
    }
    // With the new one among them: it may be the one that has to go.
    if (connections_.size() > capacity_ && !make_room()) {
      close(next_id_ - 1);
      pause_accepting();
      return;
    }
  }
}

void StoreServer::add_connection(UniqueFd fd, std::uint16_t peer_port) {
  set_connection_options(fd.get());
  const ConnectionId id = next_id_++;
  auto connection = std::make_unique<Connection>();
  connection->peer_port = peer_port;
  connection->charge = Charge(budget_, 0);
  const int number = fd.get();
  connection->fd = std::move(fd);
  const bool is_held = options_.on_connection && options_.on_connection(peer_port);
  const std::uint32_t interest = is_held ? 0U : static_cast<std::uint32_t>(EPOLLIN);
  connection->interest = interest;
  connections_.emplace(id, std::move(connection));
  try {
    loop_.add(number, interest, [this, id](std::uint32_t events) { on_event(id, events); });
    if (is_held) held_.push_back(id);
  } catch (...) {
    connections_.erase(id);
    throw;
  }
}

void StoreServer::release() {
  for (const ConnectionId id : std::exchange(held_, {})) {
    const auto found = connections_.find(id);
    if (found != connections_.end()) update_interest(*found->second);
  }
}

// Few descriptors are left. False when there is no connection that the job will not miss.
bool StoreServer::make_room() {
  const bool knows_all = options_.where.kind == ListenAt::Kind::kLoopback && options_.owners;
  const auto now = EventLoop::Clock::now();
  auto eviction = find_outsider(eviction_candidates(), knows_all, now);
  if (!eviction) {
    find_owners();
    const std::vector<EvictionCandidate> candidates = eviction_candidates();
    eviction = find_outsider(candidates, knows_all, now);
    if (!eviction) eviction = find_greediest(candidates);
  }
  if (!eviction) return false;
  refuse(*connections_.at(eviction->id), std::string("few descriptors are left (ulimit -n) and ") + eviction->reason);
  close(eviction->id);
  return true;
}

std::vector<EvictionCandidate> StoreServer::eviction_candidates() const {
  std::vector<EvictionCandidate> candidates;
  candidates.reserve(connections_.size());
  for (const auto& [id, c] : connections_) candidates.push_back({id, c->owner, c->known, c->uses_store, c->accepted});
  return candidates;
}

// Of connections that were not looked at before: looking takes time.
void StoreServer::find_owners() {
  const std::map<std::uint16_t, pid_t> owners =
      options_.owners ? options_.owners(port()) : std::map<std::uint16_t, pid_t>();
  for (const auto& [id, connection] : connections_) {
    if (connection->owner) continue;
    const auto owner = owners.find(connection->peer_port);
    connection->owner = owner != owners.end() ? owner->second : 0;
  }
}

void StoreServer::pause_accepting() {
  if (pause_) return;
  messages_.say("the store cannot take more connections: too few descriptors are left (ulimit -n)");
  listener_.set_accepting(false);
  pause_ = loop_.call_at(EventLoop::Clock::now() + std::chrono::milliseconds(200), [this] {
    pause_.reset();
    listener_.set_accepting(true);
  });
}

void StoreServer::on_event(ConnectionId id, std::uint32_t events) {
  Connection& connection = *connections_.at(id);
  try {
    serve(id, connection, events);
  } catch (const std::bad_alloc&) {
    refuse(connection, "there is not enough memory for what it asks (ulimit -v, or the container's limit)");
  }
  flush_woken();
  if (connection.broken) {
    close(id);
  } else {
    update_interest(connection);
  }
}

void StoreServer::serve(ConnectionId id, Connection& connection, std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) write_some(connection);
  if (connection.requests_waiting) {
    // A peer that is gone takes no more replies.
    if ((events & (EPOLLHUP | EPOLLERR)) != 0) connection.broken = true;
  } else if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    read_some(connection);
  }
  answer_requests(id, connection);
  charge(connection);
}

// A request that is not complete, and replies that are not read, may be large: they count as what the store holds.
void StoreServer::charge(Connection& connection) {
  const std::size_t held = connection.held_bytes();
  connection.charge.resize(held);
  if (held > kFreeBytes && !budget_->has_room(0)) refuse(connection, budget_->full_message());
}

void StoreServer::read_some(Connection& connection) {
  std::array<char, kReadBytes> bytes;
  const ssize_t count = ::read(connection.fd.get(), bytes.data(), bytes.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    connection.broken = true;
    return;
  }
  connection.parser.feed(std::string_view(bytes.data(), static_cast<std::size_t>(count)));
}

void StoreServer::answer_requests(ConnectionId id, Connection& connection) {
  while (!connection.broken) {
    connection.requests_waiting = connection.replies.size() > kMaxPendingReplies;
    if (connection.requests_waiting) return;
    std::optional<Request> request = connection.parser.next();
    if (!request) break;
    connection.known = true;
    if (request->opcode != Opcode::kValidate && request->opcode != Opcode::kPing) connection.uses_store = true;
    const std::string problem = store_.handle(id, std::move(*request), *this);
    if (!problem.empty()) refuse(connection, problem);
  }
  if (!connection.parser.error().empty()) refuse(connection, connection.parser.error());
}

void StoreServer::refuse(Connection& connection, const std::string& reason) {
  if (connection.broken) return;
  connection.broken = true;
  ++refusals_;
  if (refusals_ > kMaxNamedRefusals) return;
  messages_.say("the store closed the connection of " + peer_of(connection.fd.get()) + ": " + reason +
                (refusals_ == kMaxNamedRefusals ? " (further ones are not reported)" : ""));
}

void StoreServer::close(ConnectionId id) {
  const auto found = connections_.find(id);
  store_.forget(id);
  loop_.remove(found->second->fd.get());
  connections_.erase(found);
}

void StoreServer::write_some(Connection& connection) {
  if (!connection.replies.send_to(connection.fd.get())) connection.broken = true;
}

void StoreServer::update_interest(Connection& connection) {
  std::uint32_t wanted = 0;
  if (!connection.requests_waiting) wanted |= EPOLLIN;
  if (!connection.replies.is_empty() || connection.requests_waiting) wanted |= EPOLLOUT;
  if (wanted != connection.interest) {
    connection.interest = wanted;
    loop_.change(connection.fd.get(), wanted);
  }
}

// The replies of `to`, which are written when the event that produced them is over.
ReplyQueue& StoreServer::replies_of(ConnectionId to) {
  ReplyQueue& replies = connections_.at(to)->replies;
  if (replies.is_empty()) woken_.push_back(to);
  return replies;
}

void StoreServer::send_u8(ConnectionId to, std::uint8_t value) {
  append_integer(replies_of(to).packed(sizeof value), value);
}

void StoreServer::send_u32(ConnectionId to, std::uint32_t value) {
  append_integer(replies_of(to).packed(sizeof value), value);
}

void StoreServer::send_i64(ConnectionId to, std::int64_t value) {
  append_integer(replies_of(to).packed(sizeof value), value);
}

void StoreServer::send_bytes(ConnectionId to, const Value& value) {
  send_i64(to, static_cast<std::int64_t>(value->size()));
  send_raw(to, value);
}

void StoreServer::send_raw(ConnectionId to, const Value& bytes) {
  replies_of(to).add(bytes);
}

// Writes the replies that one event produced, in one go per connection.
void StoreServer::flush_woken() {
  for (const ConnectionId id : std::exchange(woken_, {})) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;
    Connection& connection = *found->second;
    write_some(connection);
    connection.charge.resize(connection.held_bytes());
    update_interest(connection);
  }
}

}  // namespace launcher::store
