#include "launcher/nodes/store/proxy_links.h"

#include <algorithm>

namespace launcher::store {
namespace {

// The memory of a client in addition to its requests and replies.
constexpr std::size_t kClientBytes = 1024;
// Much more than the processes of a node.
constexpr std::size_t kMaxClients = std::size_t{1} << 17;

}  // namespace

ProxyLinks::ProxyLinks(KeyValueStore& store, ReplyRouter& router, std::shared_ptr<MemoryBudget> budget,
                       Callbacks callbacks)
    : store_(store), router_(router), budget_(std::move(budget)), callbacks_(std::move(callbacks)) {}

void ProxyLinks::add(LinkId id, std::string name, std::shared_ptr<StoreChannel> store_channel) {
  auto connection = std::make_unique<ChannelLink>(
      std::move(store_channel),
      ChannelLink::Callbacks{.on_frame = [this, id](const Frame& frame) { on_frame(id, frame); },
                             .on_delivered = [this] { callbacks_.on_answered(); },
                             .on_broken = [this, id] { drop(id); }});
  links_.emplace(id, Link{.connection = std::move(connection), .name = std::move(name), .charge = Charge(budget_, 0)});
}

bool ProxyLinks::on_received(LinkId id, std::string_view bytes) {
  links_.at(id).connection->on_received(bytes);
  return links_.contains(id);
}

void ProxyLinks::on_frame(LinkId id, const Frame& frame) {
  Link& link = links_.at(id);
  if (frame.kind == FrameKind::kOpen) {
    open(id, frame.channel);
    return;
  }
  const auto found = link.clients.find(frame.channel);
  if (found == link.clients.end()) return;  // the client was refused in the meantime
  const ConnectionId number = found->second;
  Client& client = *clients_.at(number);
  if (frame.kind == FrameKind::kClose) {
    end(number);
  } else if (frame.kind == FrameKind::kTaken) {
    if (!client.to_client.taken(frame.number)) {
      drop(id);
    } else if (send_replies(client)) {
      serve(number, client);
    }
  } else if (!client.from_client.received(frame.bytes.size())) {
    drop(id);
  } else {
    client.session.feed(frame.bytes);
    serve(number, client);
  }
}

void ProxyLinks::open(LinkId id, Channel channel) {
  Link& link = links_.at(id);
  if (link.clients.contains(channel) || link.clients.size() >= kMaxClients || !budget_->has_room(kClientBytes)) {
    link.connection->send(FrameKind::kClose, channel);
    return;
  }
  const ConnectionId number = next_client_++;
  clients_.emplace(number, std::make_unique<Client>(number, id, channel, *this));
  link.clients.emplace(channel, number);
  link.charge.resize(link.clients.size() * kClientBytes);
}

void ProxyLinks::serve(ConnectionId id, Client& client) {
  std::string problem;
  try {
    problem = client.session.answer();
    if (problem.empty()) problem = client.session.charge();
  } catch (const std::bad_alloc&) {
    problem = "there is not enough memory for its request (ulimit -v, or the container's limit)";
  }
  if (!problem.empty()) {
    refuse(id, problem);
    return;
  }
  if (client.session.has_requests_waiting()) return;
  client.from_client.taken(client.from_client.held());
  if (const std::uint32_t taken = client.from_client.announcement(); taken != 0) {
    links_.at(client.link).connection->send(FrameKind::kTaken, client.channel, {}, taken);
  }
}

// Returns true when requests that waited for room can be answered now.
bool ProxyLinks::send_replies(Client& client) {
  ChannelLink& connection = *links_.at(client.link).connection;
  ReplyQueue& replies = client.session.replies();
  while (!replies.is_empty() && client.to_client.room() > 0) {
    client.waits_for_space = !connection.has_room();
    if (client.waits_for_space) return false;
    const std::string bytes = replies.take(std::min(kMaxFrameBytes, client.to_client.room()));
    client.to_client.sent(bytes.size());
    connection.send(FrameKind::kData, client.channel, bytes);
  }
  return client.session.has_requests_waiting();
}

void ProxyLinks::on_replies(ConnectionId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  Client& client = *found->second;
  const LinkId link = client.link;
  if (send_replies(client)) serve(id, client);
  links_.at(link).connection->flush();
  if (clients_.contains(id)) client.session.charge();  // else serve() has refused the client
}

void ProxyLinks::on_space_available(LinkId id) {
  const auto link = links_.find(id);
  if (link == links_.end()) return;
  std::vector<ConnectionId> waiting;
  for (const auto& [channel, number] : link->second.clients) {
    if (clients_.at(number)->waits_for_space) waiting.push_back(number);
  }
  std::sort(waiting.begin(), waiting.end());
  for (const ConnectionId number : waiting) {
    Client& client = *clients_.at(number);
    if (send_replies(client)) serve(number, client);
  }
  callbacks_.on_answered();
  link->second.connection->flush();
}

void ProxyLinks::refuse(ConnectionId id, const std::string& reason) {
  const Client& client = *clients_.at(id);
  const Link& link = links_.at(client.link);
  callbacks_.on_refused(link.name, reason);
  link.connection->send(FrameKind::kClose, client.channel);
  end(id);
}

void ProxyLinks::end(ConnectionId id) {
  const auto found = clients_.find(id);
  Link& link = links_.at(found->second->link);
  link.clients.erase(found->second->channel);
  link.charge.resize(link.clients.size() * kClientBytes);
  clients_.erase(found);
}

void ProxyLinks::drop(LinkId id) {
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  for (const auto& [channel, number] : found->second.clients) clients_.erase(number);
  links_.erase(found);
  callbacks_.on_answered();  // requests that arrived before may have woken other clients
}

}  // namespace launcher::store
