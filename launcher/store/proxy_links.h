// The store's end of the connections of other launchers' proxies: each carries all clients of a node, every one of
// which is served as if it had a connection of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "launcher/store/channel_link.h"
#include "launcher/store/client_session.h"
#include "launcher/store/key_value_store.h"
#include "launcher/store/memory_budget.h"
#include "launcher/store/reply_router.h"
#include "launcher/system/event_loop.h"
#include "launcher/system/unique_fd.h"

namespace launcher::store {

class ProxyLinks {
 public:
  struct Callbacks {
    // Requests were answered: whoever got replies is to be sent them.
    std::function<void()> on_answered{};
    // A client that came through connection `fd` was refused.
    std::function<void(int fd, const std::string& reason)> on_refused{};
  };
  // The references must outlive this.
  ProxyLinks(EventLoop& loop, KeyValueStore& store, ReplyRouter& router, std::shared_ptr<MemoryBudget> budget,
             Callbacks callbacks);
  ProxyLinks(const ProxyLinks&) = delete;
  ProxyLinks& operator=(const ProxyLinks&) = delete;

  // A connection that began with kProxyGreeting, and what has come behind that.
  void adopt(UniqueFd fd, std::string_view received);
  // Replies for `id` are there, if it is one of these clients.
  void on_replies(ConnectionId id);
  std::size_t links() const { return links_.size(); }
  std::size_t clients() const { return clients_.size(); }

 private:
  using LinkId = std::uint64_t;
  struct Link {
    std::unique_ptr<ChannelLink> connection;
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
  void on_room(LinkId id);
  void refuse(ConnectionId id, const std::string& reason);
  void end(ConnectionId id);
  void drop(LinkId id);

  EventLoop& loop_;
  KeyValueStore& store_;
  ReplyRouter& router_;
  std::shared_ptr<MemoryBudget> budget_;
  Callbacks callbacks_;
  LinkId next_link_ = 0;
  ConnectionId next_client_ = ConnectionId{1} << 63;  // apart from the numbers of direct connections
  std::unordered_map<LinkId, Link> links_;
  std::unordered_map<ConnectionId, std::unique_ptr<Client>> clients_;
};

}  // namespace launcher::store
