// Another launcher that takes itself for the one which hosts the job's store: looked for at the address that all nodes
// were told, where this one cannot listen there itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/nodes/control/control_messages.h"
#include "launcher/nodes/control/secret.h"
#include "launcher/nodes/rendezvous/coordinator_search.h"
#include "launcher/nodes/rendezvous/member.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"
#include "launcher/os/system/unique_fd.h"
#include "launcher/plan/outcome/job_end.h"

namespace launcher {

class DuplicateCoordinator {
 public:
  struct Settings {
    std::string host{};
    std::uint16_t port = 0;
    control::Hello hello{};  // of this launcher, with the number that it has, too
    std::optional<control::Secret> secret = std::nullopt;
  };
  // Looks until it is destroyed. There is one: `on_found` is called once, with what is wrong, and the other launcher
  // has told its nodes the same. `loop` and `messages` must outlive the object.
  DuplicateCoordinator(EventLoop& loop, Messages& messages, Settings settings,
                       std::function<void(JoinFailure)> on_found);
  ~DuplicateCoordinator();
  // Which program has the port instead of a store, and what to do; "" when nothing is known.
  std::string other_service() const { return search_ ? search_->other_service() : ""; }
  DuplicateCoordinator(const DuplicateCoordinator&) = delete;
  DuplicateCoordinator& operator=(const DuplicateCoordinator&) = delete;

 private:
  std::string place() const { return settings_.host + " port " + std::to_string(settings_.port); }
  void meet(UniqueFd fd);

  EventLoop& loop_;
  Messages& messages_;
  Settings settings_;
  std::function<void(JoinFailure)> on_found_;
  std::unique_ptr<CoordinatorSearch> search_;
  std::unique_ptr<Member> member_;
};

}  // namespace launcher
