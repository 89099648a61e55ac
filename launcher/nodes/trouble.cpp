#include "launcher/nodes/trouble.h"

#include <chrono>

#include "launcher/nodes/rendezvous_kinds.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/plan/rank_plan.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// The other nodes were started with this one.
constexpr auto kTellTrouble = 5s;

// Its own words have been printed.
class Silent : public Messages {
 public:
  void say(std::string_view /*line*/) override {}
  void say_block(std::string_view /*lines*/) override {}
};

}  // namespace

int tell_other_nodes(const Options& options, const JoinFailure& trouble) {
  if (options.nnodes == 1) return trouble.exit_status;
  try {
    RendezvousSettings settings = rendezvous_settings(options, plan_environment(options, 0, "", 1));
    settings.trouble = trouble;
    settings.is_any_ending = [] { return false; };
    settings.on_failure = [](const FailureNotice&) {};
    EventLoop loop;
    Silent messages;
    bool is_over = false;
    loop.call_at(EventLoop::Clock::now() + kTellTrouble, [&is_over] { is_over = true; });
    const auto rendezvous = find_rendezvous(options)->make(loop, messages, std::move(settings));
    rendezvous->begin_round(0);
    while (!is_over && !(rendezvous->join_failure() && rendezvous->has_left())) loop.run_once();
    // Another one may have had its own trouble first.
    if (const auto failure = rendezvous->join_failure(); failure && failure->exit_status != 0)
      return failure->exit_status;
  } catch (const LaunchError&) {  // they cannot be told: their own limits of time end them
  }
  return trouble.exit_status;
}

}  // namespace launcher
