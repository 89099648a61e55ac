// The store on a TCP port, inside the launcher's event loop. It never blocks the loop. It stops reading from a
// connection that does not read its replies, closes connections that violate the protocol or ask for too much memory,
// and keeps connections free for the job's own processes. Clients on other nodes may connect through their launchers
// (store_proxy.h).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "launcher/nodes/store/key_value_store.h"
#include "launcher/nodes/store/memory_budget.h"
#include "launcher/nodes/store/proxy_links.h"
#include "launcher/nodes/store/reply_queue.h"
#include "launcher/os/network/listener.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher::store {

struct EvictionCandidate {
  ConnectionId id = 0;                        // older ones have lower numbers
  std::optional<pid_t> owner = std::nullopt;  // set once it was searched for; 0: no process of this job
  bool is_known = false;                      // has sent a valid request
  bool uses_store = false;                    // has asked the store for something
  std::chrono::steady_clock::time_point accepted{};
};

struct Eviction {
  ConnectionId id = 0;
  const char* reason = "";
};

// Returns the oldest connection that belongs to no process of this job; connections without a request come first.
// `knows_all`: a connection without a known process does not belong to the job. Otherwise, with several nodes, that is
// true only if it has not used the store for a while.
std::optional<Eviction> find_foreign_connection(const std::vector<EvictionCandidate>& candidates, bool knows_all,
                                                std::chrono::steady_clock::time_point now);

// Returns the oldest connection of the process that has the most, if it has more than its fair share.
std::optional<Eviction> find_busiest_process(const std::vector<EvictionCandidate>& candidates);

struct ServerOptions {
  std::uint16_t port = 0;  // 0: the kernel chooses a free one
  ListenAt where{};        // by default loopback
  // Called with the remote port when a connection was accepted. If it returns true, the server reads nothing from the
  // connection, and so answers nothing, before release().
  std::function<bool(std::uint16_t peer_port)> on_connection{};
  // Returns the process of this job for each connection to `port`, by the connection's remote port. Called when
  // descriptors run out and a connection must be closed.
  std::function<std::map<std::uint16_t, pid_t>(std::uint16_t port)> owners{};
};

class StoreServer {
 public:
  // Binds and listens. Throws LaunchError when the port is taken. `loop` and `messages` must outlive the server.
  StoreServer(EventLoop& loop, Messages& messages, ServerOptions options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  std::uint16_t port() const { return listener_.port(); }
  // An address at which this machine can reach the store.
  const std::string& host() const { return listener_.host(); }
  // Returns the value of `key`, or "".
  std::string look_up(const std::string& key) const {
    const Value value = store_.find(key);
    return value ? *value : std::string();
  }
  // Sets a key as a client would. It may also be a key that clients of torch cannot write.
  void set(const std::string& key, std::string value) {
    store_.set(key, std::move(value), router_);
    flush_ready_connections();
  }
  std::size_t connections() const { return connections_.size(); }
  // The clients of other nodes that connect through their launchers.
  ProxyLinks& proxies() { return proxies_; }
  // Begins to read from the connections for which on_connection returned true.
  void release();

 private:
  struct Connection;
  using Connections = std::unordered_map<ConnectionId, std::unique_ptr<Connection>>;

  void accept_all(int listener);
  void add_connection(UniqueFd fd, std::uint16_t peer_port);
  void pause_accepting();
  bool make_room();
  std::vector<EvictionCandidate> eviction_candidates() const;
  void find_owners();
  void on_event(ConnectionId id, std::uint32_t events);
  void serve(Connection& connection, std::uint32_t events);
  void read_some(Connection& connection);
  void write_some(Connection& connection);
  void update_interest(Connection& connection);
  void refuse(Connection& connection, const std::string& reason);
  void print_refused(const std::string& name, const std::string& reason);
  void close(ConnectionId id);

  void flush_ready_connections();

  EventLoop& loop_;
  Messages& messages_;
  ServerOptions options_;
  int descriptor_limit_;
  std::size_t capacity_ =
      std::numeric_limits<std::size_t>::max();  // the number of connections for which there are descriptors
  Listener listener_;
  ConnectionId next_id_ = 0;
  std::shared_ptr<MemoryBudget> budget_;
  KeyValueStore store_{budget_};
  ReplyRouter router_;
  Connections connections_;
  std::vector<ConnectionId> held_;
  std::size_t refusals_ = 0;
  ProxyLinks proxies_;
};

}  // namespace launcher::store
