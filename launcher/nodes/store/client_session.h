// One client of the store, however its bytes come: has its requests answered as long as it takes the replies, and is
// charged for what it leaves unfinished. No sockets.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/nodes/store/key_value_store.h"
#include "launcher/nodes/store/memory_budget.h"
#include "launcher/nodes/store/reply_queue.h"
#include "launcher/nodes/store/request_parser.h"

namespace launcher::store {

class ClientSession {
 public:
  // The references must outlive the session. At its end the client waits for nothing any more.
  ClientSession(ConnectionId id, KeyValueStore& store, ReplyRouter& router, std::shared_ptr<MemoryBudget> budget);
  ~ClientSession();
  ClientSession(const ClientSession&) = delete;
  ClientSession& operator=(const ClientSession&) = delete;

  void feed(std::string_view bytes) { parser_.feed(bytes); }
  // Answers the requests that are whole. Returns why the client has to go, "" when it may stay.
  [[nodiscard]] std::string answer();
  // A request that is not complete, and replies that are not read, may be large: they count as what the store holds,
  // from now on as they are. Returns why the client has to go if it is to keep that, else "".
  std::string charge();
  // Requests were received but are not answered: the replies before them are not taken.
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
  bool uses_store_ = false;  // one that asks the store for something
  bool has_requests_waiting_ = false;
};

}  // namespace launcher::store
