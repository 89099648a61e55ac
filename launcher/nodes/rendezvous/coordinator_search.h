// Searches for the launcher that hosts the job's store, which may not run yet: connects to the store, reads from it the
// port on which its launcher accepts the others, and connects to that port.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/nodes/store/store_client.h"
#include "launcher/os/network/connector.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {

class CoordinatorSearch {
 public:
  struct Callbacks {
    // The control connection of ddprun's launcher.
    std::function<void(UniqueFd fd)> on_found{};
    // The store does not belong to a ddprun, so it is torchrun's.
    std::function<void()> on_foreign{};
    // Another program has the port: which one, and what to do. Without this callback the search continues.
    std::function<void(const std::string& text)> on_other_service{};
  };
  // Searches until one of the callbacks was called; a callback may destroy the search. `nodes`: how many nodes may
  // search at the same time.
  CoordinatorSearch(EventLoop& loop, std::string host, std::uint16_t port, int nodes, Callbacks callbacks);

  // The problem of the last attempt; "" when none is known.
  std::string problem() const;
  // The host name could not be resolved so far.
  bool is_unresolved() const { return store_ && store_->is_unresolved(); }
  // The text for on_other_service, available after the first answer of another program; "" before.
  std::string other_service() const { return other_answers_ > 0 ? problem_ : ""; }

 private:
  void ask_store();
  void ask_again(std::string problem);
  void connect(const std::string& port);
  void on_store_lost();

  EventLoop& loop_;
  std::string host_;
  std::uint16_t port_;
  std::chrono::milliseconds early_pause_;
  Callbacks callbacks_;
  std::unique_ptr<store::StoreClient> store_;
  std::unique_ptr<Connector> connector_;
  std::string problem_;
  bool is_slow_ = false;   // the store was slow, so no probe is sent to it again
  int other_answers_ = 0;  // how many times in a row another program has answered
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher
