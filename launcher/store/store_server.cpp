#include "launcher/store/store_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <limits>
#include <new>
#include <optional>
#include <utility>

#include "launcher/store/tcp_socket.h"
#include "launcher/store/wire_format.h"
#include "launcher/system/launch_error.h"

namespace launcher::store {
namespace {

constexpr std::size_t kReadBytes = 64 << 10;
// Replies waiting for a slow reader before its requests are no longer read.
constexpr std::size_t kMaxPendingReplies = std::size_t{1} << 20;
// From this size a value is shared with the reply instead of copied.
constexpr std::size_t kShareFrom = 128;
// What the store may hold in all; less where there is less memory.
constexpr std::size_t kMaxBytes = std::size_t{1} << 30;
// A connection may keep this much of a request unfinished, and of replies unread, in a full store, too: else nobody
// could read or delete anything.
constexpr std::size_t kFreeBytes = std::size_t{1} << 17;
// A process of this job that holds more connections than this loses the oldest when descriptors run out.
constexpr std::size_t kFairShare = 16;
// On several nodes a connection that has not used the store for so long is nobody's.
constexpr auto kTimeToSpeak = std::chrono::seconds(1);
// Refused connections are named one by one up to here: strangers must not flood the job's output.
constexpr std::size_t kMaxNamedRefusals = 8;
// Descriptors that connections leave for what ends the job: looking at processes, reading error files.
constexpr int kReservedDescriptors = 16;

int descriptor_limit() {
  rlimit limit{};
  const bool is_known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < std::numeric_limits<int>::max();
  return is_known ? static_cast<int>(limit.rlim_cur) : std::numeric_limits<int>::max();
}

// A quarter of the machine's memory, half of the address space.
std::size_t memory_limit() {
  std::size_t limit = kMaxBytes;
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0)
    limit = std::min(limit, static_cast<std::size_t>(pages) * static_cast<std::size_t>(page) / 4);
  rlimit space{};
  if (::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
    limit = std::min<std::size_t>(limit, space.rlim_cur / 2);
  }
  return limit;
}

}  // namespace

// Replies on their way: small ones are packed together, large values are shared with the store.
struct StoreServer::Connection {
  struct Piece {
    Value shared;  // null: `own` holds the bytes
    std::string own;
    std::string_view bytes() const { return shared ? std::string_view(*shared) : std::string_view(own); }
  };

  UniqueFd fd;
  std::uint16_t peer_port = 0;
  EventLoop::Clock::time_point accepted = EventLoop::Clock::now();
  RequestParser parser;
  std::deque<Piece> pending;
  std::size_t sent_of_first = 0;
  std::size_t pending_bytes = 0;
  std::size_t own_bytes = 0;  // of the pending ones, what no value shares
  Charge charge;              // for what it has not finished sending or reading
  std::uint32_t interest = EPOLLIN;
  bool known = false;             // has sent a valid request
  bool uses_store = false;        // one that asks the store for something
  std::optional<pid_t> owner;     // once looked for; 0: no process of this job
  bool requests_waiting = false;  // received but not answered: the replies before them are not taken
  bool broken = false;
};

StoreServer::StoreServer(EventLoop& loop, Messages& messages, ServerOptions options)
    : loop_(loop),
      messages_(messages),
      options_(std::move(options)),
      descriptor_limit_(descriptor_limit()),
      budget_(std::make_shared<MemoryBudget>(memory_limit())) {
  if (!options_.loopback_only) listener_ = listen_on(AF_INET6, options_.port, false);
  // No IPv6 on this machine, or only loopback wanted. A taken port is an error for either family.
  if (!listener_ && (options_.loopback_only || errno != EADDRINUSE))
    listener_ = listen_on(AF_INET, options_.port, options_.loopback_only);
  if (!listener_) {
    const int error = errno;
    if (error == EADDRINUSE) {
      throw LaunchError("port " + std::to_string(options_.port) +
                        " is in use by another program; choose another one with --master_port");
    }
    throw LaunchError("cannot listen on port " + std::to_string(options_.port) + ": " + std::strerror(error) +
                      (error == EACCES ? " (ports below 1024 belong to root)" : ""));
  }
  port_ = port_of(listener_.get());
  loop_.add(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_all(); });
}

StoreServer::~StoreServer() {
  if (pause_) loop_.cancel(*pause_);
  loop_.remove(listener_.get());
  for (const auto& [id, connection] : connections_) loop_.remove(connection->fd.get());
}

void StoreServer::accept_all() {
  // A bounded number in a row: a flood of connections must not keep the loop from the ranks.
  for (int i = 0; i < 64; ++i) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    UniqueFd fd(::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&peer), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
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
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
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

// Few descriptors are left: a connection goes that the job will not miss. First those of no process of this job, silent
// ones before others; on several nodes, where nobody knows whose the others are, those that have not used the store for
// a while. Then those of a process that has many. False when there is none of them.
bool StoreServer::make_room() {
  const auto drop_oldest = [this](const char* reason, const auto& may_go) {
    std::optional<ConnectionId> oldest;
    for (const auto& [id, connection] : connections_) {
      if ((!oldest || id < *oldest) && may_go(*connection)) oldest = id;
    }
    if (!oldest) return false;
    refuse(*connections_.at(*oldest), std::string("few descriptors are left (ulimit -n) and ") + reason);
    close(*oldest);
    return true;
  };
  const bool knows_all = options_.loopback_only && options_.owners;
  const auto settled_before = EventLoop::Clock::now() - kTimeToSpeak;
  const auto is_outsider = [&](const Connection& c) {
    return c.owner == 0 && (knows_all || (!c.uses_store && c.accepted < settled_before));
  };
  const auto drop_outsider = [&] {
    return drop_oldest("it has not said anything", [&](const Connection& c) { return is_outsider(c) && !c.known; }) ||
           drop_oldest("it is of no process of this job", is_outsider);
  };
  if (drop_outsider()) return true;
  find_owners();
  if (drop_outsider()) return true;
  std::map<pid_t, std::size_t> counts;
  for (const auto& [id, connection] : connections_) {
    if (connection->owner.value_or(0) != 0) ++counts[*connection->owner];
  }
  const auto largest =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (largest == counts.end() || largest->second <= kFairShare) return false;
  return drop_oldest("its process has the most", [&](const Connection& c) { return c.owner == largest->first; });
}

// Of connections that were not looked at before: looking takes time.
void StoreServer::find_owners() {
  const std::map<std::uint16_t, pid_t> owners = options_.owners ? options_.owners() : std::map<std::uint16_t, pid_t>();
  for (const auto& [id, connection] : connections_) {
    if (connection->owner) continue;
    const auto owner = owners.find(connection->peer_port);
    connection->owner = owner != owners.end() ? owner->second : 0;
  }
}

void StoreServer::pause_accepting() {
  if (pause_) return;
  messages_.say("the store cannot take more connections: too few descriptors are left (ulimit -n)");
  loop_.change(listener_.get(), 0);
  pause_ = loop_.call_at(EventLoop::Clock::now() + std::chrono::milliseconds(200), [this] {
    pause_.reset();
    loop_.change(listener_.get(), EPOLLIN);
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
  const std::size_t held = connection.parser.held_bytes() + connection.own_bytes;
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
    connection.requests_waiting = connection.pending_bytes > kMaxPendingReplies;
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
  while (!connection.pending.empty()) {
    std::array<iovec, 64> vectors;
    std::size_t count = 0;
    for (const auto& piece : connection.pending) {
      if (count == vectors.size()) break;
      std::string_view bytes = piece.bytes();
      if (count == 0) bytes.remove_prefix(connection.sent_of_first);
      vectors[count].iov_base = const_cast<char*>(bytes.data());
      vectors[count].iov_len = bytes.size();
      ++count;
    }
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(connection.fd.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) connection.broken = true;
      return;
    }
    auto left = static_cast<std::size_t>(sent);
    connection.pending_bytes -= left;
    while (!connection.pending.empty()) {
      const std::size_t of_first = connection.pending.front().bytes().size() - connection.sent_of_first;
      if (left < of_first) {
        connection.sent_of_first += left;
        break;
      }
      left -= of_first;
      connection.sent_of_first = 0;
      connection.own_bytes -= connection.pending.front().own.size() + sizeof(Connection::Piece);
      connection.pending.pop_front();
    }
  }
}

void StoreServer::update_interest(Connection& connection) {
  std::uint32_t wanted = 0;
  if (!connection.requests_waiting) wanted |= EPOLLIN;
  if (!connection.pending.empty() || connection.requests_waiting) wanted |= EPOLLOUT;
  if (wanted != connection.interest) {
    connection.interest = wanted;
    loop_.change(connection.fd.get(), wanted);
  }
}

// Where to append to the replies of `to`.
std::string& StoreServer::packed_replies(ConnectionId to, std::size_t size) {
  Connection& connection = *connections_.at(to);
  if (connection.pending.empty()) woken_.push_back(to);
  if (connection.pending.empty() || connection.pending.back().shared) {
    connection.pending.emplace_back();
    connection.own_bytes += sizeof(Connection::Piece);
  }
  connection.pending_bytes += size;
  connection.own_bytes += size;
  return connection.pending.back().own;
}

void StoreServer::send_u8(ConnectionId to, std::uint8_t value) {
  append_integer(packed_replies(to, sizeof value), value);
}

void StoreServer::send_u32(ConnectionId to, std::uint32_t value) {
  append_integer(packed_replies(to, sizeof value), value);
}

void StoreServer::send_i64(ConnectionId to, std::int64_t value) {
  append_integer(packed_replies(to, sizeof value), value);
}

void StoreServer::send_bytes(ConnectionId to, const Value& value) {
  send_i64(to, static_cast<std::int64_t>(value->size()));
  send_raw(to, value);
}

void StoreServer::send_raw(ConnectionId to, const Value& bytes) {
  if (bytes->size() < kShareFrom) {
    packed_replies(to, bytes->size()).append(*bytes);
    return;
  }
  Connection& connection = *connections_.at(to);
  if (connection.pending.empty()) woken_.push_back(to);
  connection.pending.push_back({bytes, {}});
  connection.pending_bytes += bytes->size();
  connection.own_bytes += sizeof(Connection::Piece);
}

// Writes the replies that one event produced, in one go per connection.
void StoreServer::flush_woken() {
  for (const ConnectionId id : std::exchange(woken_, {})) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;
    Connection& connection = *found->second;
    write_some(connection);
    connection.charge.resize(connection.parser.held_bytes() + connection.own_bytes);
    update_interest(connection);
  }
}

}  // namespace launcher::store
