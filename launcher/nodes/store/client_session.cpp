#include "launcher/nodes/store/client_session.h"

#include <new>
#include <optional>
#include <utility>

namespace launcher::store {
namespace {

// Replies waiting for a slow reader before its requests are no longer read.
constexpr std::size_t kMaxPendingReplies = std::size_t{1} << 20;
// A connection may keep this much of a request unfinished, and of replies unread, in a full store, too: else nobody
// could read or delete anything.
constexpr std::size_t kFreeBytes = std::size_t{1} << 17;

}  // namespace

ClientSession::ClientSession(ConnectionId id, KeyValueStore& store, ReplyRouter& router,
                             std::shared_ptr<MemoryBudget> budget)
    : id_(id), store_(store), router_(router), budget_(std::move(budget)) {
  router_.add(id_, replies_);
}

ClientSession::~ClientSession() {
  store_.forget(id_);
  router_.remove(id_);
}

std::string ClientSession::answer() {
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

std::string ClientSession::charge() {
  const std::size_t held = parser_.held_bytes() + replies_.own_bytes();
  charge_.resize(held);
  return held > kFreeBytes && !budget_->has_room(0) ? budget_->full_message() : "";
}

}  // namespace launcher::store
