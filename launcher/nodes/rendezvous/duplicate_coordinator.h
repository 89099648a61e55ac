// Searches for a second launcher that considers itself the host of the job's store. It searches at the address that all
// nodes were given, if this launcher cannot listen there itself.
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
    control::Hello hello{};  // of this launcher, with its node number
    std::optional<control::Secret> secret = std::nullopt;
  };
  // Searches until it is destroyed. If there is a second launcher, calls `on_found` once with the reason; the other
  // launcher has reported the same to its nodes. `loop` and `messages` must outlive the object.
  DuplicateCoordinator(EventLoop& loop, Messages& messages, Settings settings,
                       std::function<void(JoinFailure)> on_found);
  ~DuplicateCoordinator();
  // Which other program has the port, and what to do; "" when none is known.
  std::string other_service() const { return search_ ? search_->other_service() : ""; }
  DuplicateCoordinator(const DuplicateCoordinator&) = delete;
  DuplicateCoordinator& operator=(const DuplicateCoordinator&) = delete;

 private:
  std::string place() const { return settings_.host + " port " + std::to_string(settings_.port); }
  void introduce(UniqueFd fd);

  EventLoop& loop_;
  Messages& messages_;
  Settings settings_;
  std::function<void(JoinFailure)> on_found_;
  std::unique_ptr<CoordinatorSearch> search_;
  std::unique_ptr<Member> member_;
};

}  // namespace launcher
