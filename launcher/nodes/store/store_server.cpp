#include "launcher/nodes/store/store_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <utility>

#include "launcher/os/network/tcp_socket.h"

namespace launcher::store {
namespace {

// If a process of this job has more connections than this, its oldest one may be closed.
constexpr std::size_t kMaxConnectionsPerProcess = 16;
// With several nodes, a connection that has not used the store for this long does not belong to a rank.
constexpr auto kFirstRequestTimeout = std::chrono::seconds(1);

template <typename MayGo>
std::optional<Eviction> oldest(const std::vector<EvictionCandidate>& candidates, const char* reason,
                               const MayGo& may_go) {
  std::optional<Eviction> found;
  for (const EvictionCandidate& candidate : candidates) {
    if ((!found || candidate.id < found->id) && may_go(candidate)) found = Eviction{candidate.id, reason};
  }
  return found;
}

constexpr std::size_t kReadBytes = 64 << 10;
// The number of refused connections that are reported one by one: clients from outside the job must not flood its
// output.
constexpr std::size_t kMaxNamedRefusals = 8;
// The number of descriptors that connections must leave free. They are needed at the end of the job, to examine
// processes and read error files.
constexpr int kReservedDescriptors = 16;

}  // namespace

std::optional<Eviction> find_foreign_connection(const std::vector<EvictionCandidate>& candidates, bool knows_all,
                                                std::chrono::steady_clock::time_point now) {
  const auto is_outsider = [&](const EvictionCandidate& c) {
    return c.owner == 0 && (knows_all || (!c.uses_store && c.accepted < now - kFirstRequestTimeout));
  };
  const auto is_silent = [&](const EvictionCandidate& c) { return is_outsider(c) && !c.is_known; };
  if (auto silent = oldest(candidates, "it has sent no request", is_silent)) return silent;
  return oldest(candidates, "it belongs to no process of this job", is_outsider);
}

std::optional<Eviction> find_busiest_process(const std::vector<EvictionCandidate>& candidates) {
  std::map<pid_t, std::size_t> counts;
  for (const EvictionCandidate& candidate : candidates) {
    if (candidate.owner.value_or(0) != 0) ++counts[*candidate.owner];
  }
  const auto largest =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (largest == counts.end() || largest->second <= kMaxConnectionsPerProcess) return std::nullopt;
  return oldest(candidates, "its process has the most connections",
                [&](const EvictionCandidate& c) { return c.owner == largest->first; });
}

struct StoreServer::Connection {
  Connection(UniqueFd descriptor, std::uint16_t port, ConnectionId id, StoreServer& server)
      : fd(std::move(descriptor)), peer_port(port), session(id, server.store_, server.router_, server.budget_) {}

  UniqueFd fd;
  std::uint16_t peer_port;
  EventLoop::Clock::time_point accepted = EventLoop::Clock::now();
  ClientSession session;
  std::uint32_t interest = EPOLLIN;
  std::optional<pid_t> owner = std::nullopt;  // set once it was searched for; 0: no process of this job
  bool broken = false;
};

StoreServer::StoreServer(EventLoop& loop, Messages& messages, ServerOptions options)
    : loop_(loop),
      messages_(messages),
      options_(std::move(options)),
      descriptor_limit_(descriptor_limit()),
      listener_(loop, options_.where, options_.port, [this](int listener) { accept_all(listener); }),
      budget_(std::make_shared<MemoryBudget>(memory_limit())),
      proxies_(
          store_, router_, budget_,
          {.on_answered = [this] { flush_ready_connections(); },
           .on_refused = [this](const std::string& name, const std::string& reason) { print_refused(name, reason); }}) {
}

StoreServer::~StoreServer() {
  for (const auto& [id, connection] : connections_) loop_.remove(connection->fd.get());
}

void StoreServer::accept_all(int listener) {
  for (int i = 0; i < kMaxConsecutiveAccepts; ++i) {
    Accepted accepted = accept_connection(listener);
    if (accepted.is_out_of_resources) pause_accepting();
    if (!accepted.fd) return;
    // The kernel assigns the lowest free number, so a high number means that few descriptors are left. The present
    // number of connections then becomes the limit.
    if (accepted.fd.get() >= descriptor_limit_ - kReservedDescriptors)
      capacity_ = std::min(capacity_, connections_.size());
    try {
      add_connection(std::move(accepted.fd), accepted.peer_port);
    } catch (const std::exception&) {  // there is no memory, or epoll cannot watch more descriptors
      return pause_accepting();
    }
    // The new connection is included: it may be the one that is closed.
    if (connections_.size() > capacity_ && !make_room()) {
      close(next_id_ - 1);
      return pause_accepting();
    }
  }
}

void StoreServer::add_connection(UniqueFd fd, std::uint16_t peer_port) {
  set_connection_options(fd.get());
  const ConnectionId id = next_id_++;
  const int number = fd.get();
  auto connection = std::make_unique<Connection>(std::move(fd), peer_port, id, *this);
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

// Closes a connection because few descriptors are left. Returns false when the job needs all connections.
bool StoreServer::make_room() {
  const bool knows_all = options_.where.kind == ListenAt::Kind::kLoopback && options_.owners;
  const auto now = EventLoop::Clock::now();
  auto eviction = find_foreign_connection(eviction_candidates(), knows_all, now);
  if (!eviction) {
    find_owners();
    const std::vector<EvictionCandidate> candidates = eviction_candidates();
    eviction = find_foreign_connection(candidates, knows_all, now);
    if (!eviction) eviction = find_busiest_process(candidates);
  }
  if (!eviction) return false;
  refuse(*connections_.at(eviction->id), std::string("few descriptors are left (ulimit -n) and ") + eviction->reason);
  close(eviction->id);
  return true;
}

std::vector<EvictionCandidate> StoreServer::eviction_candidates() const {
  std::vector<EvictionCandidate> candidates;
  candidates.reserve(connections_.size());
  for (const auto& [id, c] : connections_)
    candidates.push_back({id, c->owner, c->session.is_known(), c->session.uses_store(), c->accepted});
  return candidates;
}

// Finds the processes of connections for which that was not done before, because the search takes time.
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
  if (listener_.pause(std::chrono::milliseconds(200))) {
    messages_.print(
        "the store cannot accept more connections: too few file descriptors are left; raise the limit with ulimit -n");
  }
}

void StoreServer::on_event(ConnectionId id, std::uint32_t events) {
  Connection& connection = *connections_.at(id);
  try {
    serve(connection, events);
  } catch (const std::bad_alloc&) {
    refuse(connection, "there is not enough memory for its request (ulimit -v, or the container's limit)");
  }
  flush_ready_connections();
  if (connection.broken) {
    close(id);
  } else {
    update_interest(connection);
  }
}

void StoreServer::serve(Connection& connection, std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) write_some(connection);
  if (connection.session.has_requests_waiting()) {
    // A peer that has closed its connection does not read replies any more.
    if ((events & (EPOLLHUP | EPOLLERR)) != 0) connection.broken = true;
  } else if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    read_some(connection);
  }
  if (connection.broken) return;
  std::string problem = connection.session.answer();
  if (problem.empty()) problem = connection.session.charge();
  if (!problem.empty()) refuse(connection, problem);
}

void StoreServer::read_some(Connection& connection) {
  std::array<char, kReadBytes> buffer;
  const ssize_t count = ::read(connection.fd.get(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    connection.broken = true;
    return;
  }
  connection.session.feed(std::string_view(buffer.data(), static_cast<std::size_t>(count)));
}

void StoreServer::refuse(Connection& connection, const std::string& reason) {
  if (connection.broken) return;
  connection.broken = true;
  print_refused(peer_of(connection.fd.get()), reason);
}

void StoreServer::print_refused(const std::string& name, const std::string& reason) {
  ++refusals_;
  if (refusals_ > kMaxNamedRefusals) return;
  messages_.print("the store closed the connection of " + name + ": " + reason +
                  (refusals_ == kMaxNamedRefusals ? " (further ones are not reported)" : ""));
}

void StoreServer::close(ConnectionId id) {
  const auto found = connections_.find(id);
  loop_.remove(found->second->fd.get());
  connections_.erase(found);
}

void StoreServer::write_some(Connection& connection) {
  if (!connection.session.replies().send_to(connection.fd.get())) connection.broken = true;
}

void StoreServer::update_interest(Connection& connection) {
  std::uint32_t wanted = 0;
  const bool has_requests_waiting = connection.session.has_requests_waiting();
  if (!has_requests_waiting) wanted |= EPOLLIN;
  if (!connection.session.replies().is_empty() || has_requests_waiting) wanted |= EPOLLOUT;
  if (wanted != connection.interest) {
    connection.interest = wanted;
    loop_.change(connection.fd.get(), wanted);
  }
}

// Sends the replies that one event produced, with one call for each connection.
void StoreServer::flush_ready_connections() {
  for (auto woken = router_.take_ready_connections(); !woken.empty(); woken = router_.take_ready_connections()) {
    for (const ConnectionId id : woken) {
      const auto found = connections_.find(id);
      if (found == connections_.end()) {
        proxies_.on_replies(id);
        continue;
      }
      Connection& connection = *found->second;
      write_some(connection);
      connection.session.charge();
      update_interest(connection);
    }
  }
}

}  // namespace launcher::store
