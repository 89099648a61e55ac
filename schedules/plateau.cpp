#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

#include "base/json_float.h"
#include "ddprun/schedules/schedule.h"
#include "schedules/python_state.h"
#include "schedules/scheduler.h"

namespace ddp::schedules {

Plateau::Plateau(PlateauOptions options) : options_(std::move(options)) {
  require(options_.factor < 1.0, "Factor should be < 1.0.");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  state_.best = options_.mode == PlateauMode::kMin ? kInfinity : -kInfinity;
}

bool Plateau::is_better(double metric) const {
  const double best = state_.best;
  const double threshold = options_.threshold;
  if (options_.mode == PlateauMode::kMin) {
    return options_.threshold_mode == ThresholdMode::kRelative ? metric < best * (1.0 - threshold)
                                                               : metric < best - threshold;
  }
  return options_.threshold_mode == ThresholdMode::kRelative ? metric > best * (threshold + 1.0)
                                                             : metric > best + threshold;
}

void Plateau::step(double metric, Groups& groups) {
  const auto min_lr = per_group(options_.min_lr, groups.size(), "min_lr");
  ++state_.last_epoch;
  if (is_better(metric)) {
    state_.best = metric;
    state_.num_bad_epochs = 0;
  } else {
    ++state_.num_bad_epochs;
  }
  if (state_.cooldown_counter > 0) {
    --state_.cooldown_counter;
    state_.num_bad_epochs = 0;
  }
  if (state_.num_bad_epochs <= options_.patience) return;
  for (size_t i = 0; i < groups.size(); ++i) {
    const double lower = std::max(groups[i].lr * options_.factor, min_lr[i]);
    if (groups[i].lr - lower > options_.eps) groups[i].lr = lower;
  }
  state_.cooldown_counter = options_.cooldown;
  state_.num_bad_epochs = 0;
}

std::string Plateau::save() const {
  nlohmann::json state = {{"type", "ReduceLROnPlateau"},
                          {"last_epoch", state_.last_epoch},
                          {"cooldown_counter", state_.cooldown_counter},
                          {"num_bad_epochs", state_.num_bad_epochs}};
  if (state_.last_epoch > 0) state["best"] = json_float<nlohmann::json>(state_.best);
  return state.dump();
}

void Plateau::load(const std::string& text) {
  State loaded = state_;
  try {
    const auto state = nlohmann::json::parse(text);
    require_type(state, "ReduceLROnPlateau");
    loaded = {.last_epoch = step_count_at(state, "last_epoch"),
              .best = Plateau(options_).state_.best,
              .cooldown_counter = step_count_at(state, "cooldown_counter"),
              .num_bad_epochs = step_count_at(state, "num_bad_epochs")};
    if (const auto best = state.find("best"); best != state.end() && !best->is_null()) {
      const auto named = named_float(*best);
      loaded.best = named ? *named : best->get<double>();
    }
  } catch (const nlohmann::json::exception&) {
    require(false, "this is not the state of ReduceLROnPlateau");
  }
  // A negative cooldown means no cooldown, as in Python. The counter is set to it, so the counter may be negative as
  // well.
  const int64_t least = std::min<int64_t>(options_.cooldown, 0);
  require(loaded.last_epoch >= 0 && loaded.cooldown_counter >= least && loaded.num_bad_epochs >= 0,
          "the state of ReduceLROnPlateau has a negative counter");
  state_ = loaded;
}

}  // namespace ddp::schedules
