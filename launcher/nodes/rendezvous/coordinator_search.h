// Looks for the launcher that hosts the job's store, which may not be there yet: connects to the store, asks it where
// its launcher listens for others, and connects there.
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
    // There is a store, but of no ddprun: torchrun's.
    std::function<void()> on_foreign{};
    // Another program has the port, and keeps it: who it is and what to do. Without this the search continues.
    std::function<void(const std::string& text)> on_other_service{};
  };
  // Searches until one of the callbacks was called, which may destroy the search. `nodes`: that may be searching at
  // once.
  CoordinatorSearch(EventLoop& loop, std::string host, std::uint16_t port, int nodes, Callbacks callbacks);

  // What the last attempt met, "" when nothing is known to be wrong.
  std::string problem() const;
  // The host is a name that could not be resolved so far.
  bool is_unresolved() const { return store_ && store_->is_unresolved(); }
  // What on_other_service would be told, already after the first answer of another program; "" while none has arrived.
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
  bool is_slow_ = false;   // a store was, and is not disturbed again
  int other_answers_ = 0;  // how often in a row another program has answered
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher
