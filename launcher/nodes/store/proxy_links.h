// The store's end of the connections to other launchers' proxies. Each connection carries all clients of a node, and
// each client is served as if it had its own connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "launcher/nodes/store/channel_link.h"
#include "launcher/nodes/store/key_value_store.h"
#include "launcher/nodes/store/memory_budget.h"
#include "launcher/nodes/store/reply_queue.h"
#include "launcher/nodes/store/request_parser.h"
#include "launcher/nodes/store/store_channel.h"

namespace launcher::store {

// When so many bytes of replies wait for a slow client, its requests are not read any more.
inline constexpr std::size_t kMaxPendingReplies = std::size_t{1} << 20;

// Even when the store is full, a connection may have this many bytes of an unfinished request, and of unread replies.
// Otherwise no client could read or delete keys.
inline constexpr std::size_t kFreeBytes = std::size_t{1} << 17;

class ClientSession {
 public:
  // The references must outlive the session. Its destructor ends all waits of the client.
  ClientSession(ConnectionId id, KeyValueStore& store, ReplyRouter& router, std::shared_ptr<MemoryBudget> budget)
      : id_(id), store_(store), router_(router), budget_(std::move(budget)) {
    router_.add(id_, replies_);
  }
  ~ClientSession() {
    store_.forget(id_);
    router_.remove(id_);
  }
  ClientSession(const ClientSession&) = delete;
  ClientSession& operator=(const ClientSession&) = delete;

  void feed(std::string_view bytes) { parser_.feed(bytes); }
  // Answers the complete requests. Returns "", or why the client must be disconnected.
  [[nodiscard]] std::string answer() {
    while (true) {
      has_requests_waiting_ = replies_.size() > kMaxPendingReplies;
      if (has_requests_waiting_) return "";
      std::optional<Request> request = parser_.next();
      if (!request) return parser_.error();
      is_known_ = true;
      if (request->opcode != Opcode::kValidate && request->opcode != Opcode::kPing) uses_store_ = true;
      if (std::string problem = store_.handle(id_, std::move(*request), router_); !problem.empty()) return problem;
    }
  }
  // An incomplete request and replies that were not read may be large, so their present size is counted against the
  // store's budget. Returns "", or why the client must be disconnected.
  std::string charge() {
    const std::size_t held = parser_.held_bytes() + replies_.own_bytes();
    charge_.resize(held);
    return held > kFreeBytes && !budget_->has_room(0) ? budget_->full_message() : "";
  }
  // Requests were received but are not answered yet, because the client does not read the replies before them.
  bool has_requests_waiting() const { return has_requests_waiting_; }
  bool is_known() const { return is_known_; }
  bool uses_store() const { return uses_store_; }
  ReplyQueue& replies() { return replies_; }

 private:
  ConnectionId id_;
  KeyValueStore& store_;
  ReplyRouter& router_;
  std::shared_ptr<MemoryBudget> budget_;
  RequestParser parser_;
  ReplyQueue replies_;
  Charge charge_{budget_, 0};
  bool is_known_ = false;    // has sent a valid request
  bool uses_store_ = false;  // has sent a request for the store's contents
  bool has_requests_waiting_ = false;
};

class ProxyLinks {
 public:
  using LinkId = std::uint64_t;
  struct Callbacks {
    // Requests were answered, so replies may have to be sent to other clients.
    std::function<void()> on_answered{};
    // A client that came through link `name` was refused.
    std::function<void(const std::string& name, const std::string& reason)> on_refused{};
  };
  // The references must outlive this.
  ProxyLinks(KeyValueStore& store, ReplyRouter& router, std::shared_ptr<MemoryBudget> budget, Callbacks callbacks);
  ProxyLinks(const ProxyLinks&) = delete;
  ProxyLinks& operator=(const ProxyLinks&) = delete;

  // Adds a link. Replies are sent through `store_channel`. The caller passes received bytes to on_received(). `name` is
  // for messages.
  void add(LinkId id, std::string name, std::shared_ptr<StoreChannel> store_channel);
  // Returns false when no proxy would send these bytes: the link is then dropped.
  [[nodiscard]] bool on_received(LinkId id, std::string_view bytes);
  // The store channel of the link has room again.
  void on_space_available(LinkId id);
  // The link has ended, and with it all its clients.
  void drop(LinkId id);
  // There are replies for `id`, if it is one of these clients.
  void on_replies(ConnectionId id);
  std::size_t links() const { return links_.size(); }
  std::size_t clients() const { return clients_.size(); }

 private:
  struct Link {
    std::unique_ptr<ChannelLink> connection;
    std::string name{};
    std::unordered_map<Channel, ConnectionId> clients{};
    Charge charge{};
  };
  struct Client {
    Client(ConnectionId id, LinkId by, Channel as, ProxyLinks& links)
        : link(by), channel(as), session(id, links.store_, links.router_, links.budget_) {}
    LinkId link;
    Channel channel;
    ClientSession session;
    SendWindow to_client{};
    ReceiveWindow from_client{};
    bool waits_for_space = false;  // in the connection's send buffer
  };

  void on_frame(LinkId id, const Frame& frame);
  void open(LinkId id, Channel channel);
  void serve(ConnectionId id, Client& client);
  bool send_replies(Client& client);
  void refuse(ConnectionId id, const std::string& reason);
  void end(ConnectionId id);

  KeyValueStore& store_;
  ReplyRouter& router_;
  std::shared_ptr<MemoryBudget> budget_;
  Callbacks callbacks_;
  ConnectionId next_client_ = ConnectionId{1} << 63;  // does not overlap with the numbers of direct connections
  std::unordered_map<LinkId, Link> links_;
  std::unordered_map<ConnectionId, std::unique_ptr<Client>> clients_;
};

}  // namespace launcher::store
