#include "launcher/plan/scheduled_options.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <utility>

#include "launcher/os/system/launch_error.h"
#include "launcher/plan/schedulers/detect.h"
#include "launcher/plan/schedulers/variables.h"

namespace launcher {
namespace {

using std::chrono::milliseconds;

class Taker {
 public:
  Taker(const ProcessContext& context, const GivenOptions& given, Options& options)
      : context_(context), given_(given), options_(options), found_(detect_scheduler(context)) {}

  void take() {
    options_.origins = {"scheduler: " + (found_.place ? found_.place->system : std::string("none"))};
    for (const std::string& note : found_.notes) note_line(note);
    set_grace();
    take_place();
  }

 private:
  bool is_given(const std::string& name) const { return given_.contains(name); }
  void note_line(const std::string& text) { options_.origins.push_back("  " + text); }
  void origin(const std::string& name, const std::string& value, const std::string& why) {
    note_line("--" + name + " " + value + ": " + why);
  }

  // Sets the value from an option that was given, or else from the scheduler; returns false if neither has it.
  template <typename Value, typename Target, typename Text>
  bool apply_one(const std::string& name, const std::optional<Sourced<Value>>& sourced, Target& target,
                 const Text& text) {
    if (is_given(name)) {
      origin(name, text(target), given_.at(name));
      return true;
    }
    if (!sourced) return false;
    target = sourced->value;
    origin(name, text(target), sourced->why);
    return true;
  }

  // Why the scheduler is not used for this node's place; "" if it is.
  std::string option_conflict() const {
    for (const char* name : {"standalone", "hosts"}) {
      if (is_given(name)) return std::string("--") + name + " concerns this node alone";
    }
    if (is_given("nnodes") && options_.nnodes == 1) return "--nnodes is 1, from " + given_.at("nnodes");
    return "";
  }

  void take_place() {
    const auto number = [](int value) { return std::to_string(value); };
    if (const std::string why = option_conflict(); !why.empty()) return note_line("one node, because " + why);
    const ScheduledPlace place = found_.place.value_or(ScheduledPlace{});
    const bool has_both = is_given("nnodes") && is_given("node_rank");
    if (!place.problem.empty() && !has_both) throw LaunchError(place.problem);
    check_agreement(place);
    if (!apply_one("nnodes", place.nnodes, options_.nnodes, number))
      note_line("one node, because no option and no variable gives the number of nodes");
    if (options_.nproc_per_node == Options::kUnset && options_.gpus.empty()) {
      apply_one("nproc_per_node", place.nproc_per_node, options_.nproc_per_node, number);
    }
    if (options_.nnodes == 1) return;
    const bool is_numbered = options_.rdzv_backend.empty() || options_.rdzv_backend == "static";
    if (is_numbered || is_given("node_rank")) apply_one("node_rank", place.node_rank, options_.node_rank, number);
    apply_rendezvous(place);
  }

  // Detects contradictions such as: srun -N 3 ddprun --nnodes 2, where one of the three nodes would have no part.
  void check_agreement(const ScheduledPlace& place) const {
    if (!is_given("nnodes") || is_given("node_rank") || !place.nnodes || !place.node_rank) return;
    if (place.nnodes->value == options_.nnodes || place.nnodes->value == 1) return;
    throw LaunchError("--nnodes " + std::to_string(options_.nnodes) + " (" + given_.at("nnodes") + "), but " +
                      place.system + " started ddprun on " + std::to_string(place.nnodes->value) + " nodes (" +
                      place.nnodes->why + "): leave --nnodes out, or give --node_rank too");
  }

  void apply_rendezvous(ScheduledPlace place) {
    const auto text = [](const std::string& value) { return value; };
    if (is_given("rdzv_endpoint")) {
      origin("rdzv_endpoint", options_.rdzv_endpoint, given_.at("rdzv_endpoint"));
    } else {
      if (found_.place) read_master(place);
      apply_one("master_addr", place.master_addr, options_.master_addr, text);
      apply_one("master_port", place.master_port, options_.master_port,
                [](const auto& port) { return std::to_string(port.value_or(0)); });
    }
    apply_one("rdzv_id", place.job_id, options_.rdzv_id, text);
  }

  // The system that starts ddprun may have set these in addition to the scheduler's variables.
  void read_master(ScheduledPlace& place) const {
    try {
      if (const auto port = number_of(context_, "MASTER_PORT", 1, 65535)) {
        place.master_port = {static_cast<std::uint16_t>(port->value), port->why};
      }
    } catch (const std::invalid_argument& error) {
      if (!is_given("master_port")) throw LaunchError(error.what());
    }
    const auto address = text_of(context_, "MASTER_ADDR");
    // Operators set "localhost" for the pod that listens. Other pods cannot reach it under that name.
    const bool is_for_itself = address == "localhost" && options_.node_rank == 0;
    if (address && !is_for_itself) place.master_addr = sourced_text("MASTER_ADDR", *address);
  }

  // Limits the grace time: ddprun must have ended its ranks and printed its messages before the scheduler kills it.
  void set_grace() {
    if (!found_.place || !found_.place->kill_wait) return;
    const milliseconds limit = found_.place->kill_wait->value;
    const milliseconds longest = std::max(limit - std::max(milliseconds(1000), limit / 6), limit / 2);
    const std::string seconds = std::to_string(found_.place->kill_wait->value.count());
    const std::string why =
        found_.place->system + " kills " + seconds + " s after TERM (" + found_.place->kill_wait->why + ")";
    if (is_given("grace")) {
      if (options_.grace > longest)
        note_line("--grace is longer than the time that a cancelled job has, because " + why);
      return;
    }
    if (longest >= options_.grace) return;
    options_.grace = longest;
    origin("grace", std::to_string(static_cast<double>(longest.count()) / 1000).substr(0, seconds.size() + 2), why);
  }

  const ProcessContext& context_;
  const GivenOptions& given_;
  Options& options_;
  Detection found_;
};

}  // namespace

const std::vector<std::string>& place_options() {
  static const std::vector<std::string> names = {"nnodes",        "node_rank", "master_addr",    "master_port",
                                                 "rdzv_endpoint", "rdzv_id",   "nproc_per_node", "hosts",
                                                 "standalone",    "grace"};
  return names;
}

void apply_scheduler(const ProcessContext& context, const GivenOptions& given, Options& options) {
  Taker(context, given, options).take();
}

}  // namespace launcher
