// The store's end of the links of other launchers' proxies: each carries all clients of a node, every one of which is
// served as if it had a connection of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "launcher/nodes/store/channel_link.h"
#include "launcher/nodes/store/client_session.h"
#include "launcher/nodes/store/key_value_store.h"
#include "launcher/nodes/store/memory_budget.h"
#include "launcher/nodes/store/reply_queue.h"
#include "launcher/nodes/store/store_channel.h"

namespace launcher::store {

class ProxyLinks {
 public:
  using LinkId = std::uint64_t;
  struct Callbacks {
    // Requests were answered: clients with replies are to be sent them.
    std::function<void()> on_answered{};
    // A client that came through link `name` was refused.
    std::function<void(const std::string& name, const std::string& reason)> on_refused{};
  };
  // The references must outlive this.
  ProxyLinks(KeyValueStore& store, ReplyRouter& router, std::shared_ptr<MemoryBudget> budget, Callbacks callbacks);
  ProxyLinks(const ProxyLinks&) = delete;
  ProxyLinks& operator=(const ProxyLinks&) = delete;

  // A new link, by whose `store_channel` replies go; what comes by it is the caller's to deliver. `name` is for
  // messages.
  void add(LinkId id, std::string name, std::shared_ptr<StoreChannel> store_channel);
  // False when that was no proxy's: the link is dropped.
  [[nodiscard]] bool deliver(LinkId id, std::string_view bytes);
  // There is room X.
  void on_room(LinkId id);
  // It is over, and its clients with it.
  void drop(LinkId id);
  // Replies for `id` are there, if it is one of these clients.
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
    bool waits_for_room = false;  // on the connection
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
  ConnectionId next_client_ = ConnectionId{1} << 63;  // apart from the numbers of direct connections
  std::unordered_map<LinkId, Link> links_;
  std::unordered_map<ConnectionId, std::unique_ptr<Client>> clients_;
};

}  // namespace launcher::store
