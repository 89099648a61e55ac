#include "launcher/nodes/rendezvous/duplicate_coordinator.h"

#include <chrono>
#include <utility>

#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// How long this launcher may be silent on this connection. It only serves to report the conflict, so there is no hurry.
constexpr auto kDuplicateTimeout = 30'000ms;

}  // namespace

DuplicateCoordinator::DuplicateCoordinator(EventLoop& loop, Messages& messages, Settings settings,
                                           std::function<void(JoinFailure)> on_found)
    : loop_(loop), messages_(messages), settings_(std::move(settings)), on_found_(std::move(on_found)) {
  search_ = std::make_unique<CoordinatorSearch>(
      loop_, settings_.host, settings_.port, settings_.hello.nnodes,
      CoordinatorSearch::Callbacks{
          .on_found = [this](UniqueFd fd) { introduce(std::move(fd)); },
          .on_foreign =
              [this] {
                on_found_({"a store of a program other than ddprun is at " + place() +
                               " (torchrun's node 0, for example): start this node with another --node_rank, or choose "
                               "another --master_port",
                           to_int(ExitStatus::kLauncherError)});
              },
          .on_other_service =
              [this](const std::string& text) {
                on_found_({text, to_int(ExitStatus::kLauncherError)});
              }});
}

DuplicateCoordinator::~DuplicateCoordinator() = default;

// The other launcher compares both and reports the conflict to both. If this launcher has connected to itself, it
// receives no message.
void DuplicateCoordinator::introduce(UniqueFd fd) {
  MemberOptions options{.hello = settings_.hello, .secret = settings_.secret, .coordinator = place()};
  options.timeout = [] { return kDuplicateTimeout; };
  options.is_any_ending = [] { return false; };
  options.on_start = [](const control::Start&) {};
  options.on_failure = [](const FailureNotice&) {};
  options.on_refusal = [this](const JoinFailure& reason) {
    const auto on_found = on_found_;  // it may destroy this object
    on_found(reason);
  };
  member_ = std::make_unique<Member>(loop_, messages_, std::move(options), std::move(fd));
  member_->begin_round(0);
  search_.reset();
}

}  // namespace launcher
