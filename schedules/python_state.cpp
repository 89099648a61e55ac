#include "schedules/python_state.h"

#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <string_view>

#include "schedules/scheduler.h"

namespace ddp::schedules {
namespace {

using nlohmann::json;

struct Sign {
  std::string_view key;
  std::string_view type;
};

// A state belongs to the class of the first of these keys that it contains.
constexpr std::array kSigns = {Sign{"patience", "ReduceLROnPlateau"},
                               Sign{"_milestones", "SequentialLR"},
                               Sign{"_schedulers", "ChainedScheduler"},
                               Sign{"T_0", "CosineAnnealingWarmRestarts"},
                               Sign{"T_max", "CosineAnnealingLR"},
                               Sign{"total_steps", "OneCycleLR"},
                               Sign{"step_ratio", "CyclicLR"},
                               Sign{"milestones", "MultiStepLR"},
                               Sign{"step_size", "StepLR"},
                               Sign{"start_factor", "LinearLR"},
                               Sign{"power", "PolynomialLR"},
                               Sign{"total_iters", "ConstantLR"},
                               Sign{"gamma", "ExponentialLR"},
                               Sign{"anneal_epochs", "SWALR"}};

std::string type_of(const json& state, const std::string& wanted) {
  if (state.contains("type")) return state.at("type").get<std::string>();
  if (state.contains("lr_lambdas")) return wanted == "MultiplicativeLR" ? wanted : "LambdaLR";
  for (const auto& sign : kSigns) {
    if (state.contains(sign.key)) return std::string(sign.type);
  }
  return "an unknown schedule";
}

const json& first_part(const json& state) {
  const auto* part = &state;
  for (int depth = 0; depth < 16 && part->contains("_schedulers"); ++depth) part = &part->at("_schedulers").at(0);
  return *part;
}

}  // namespace

void require_type(const json& state, const std::string& name) {
  const auto type = type_of(state, name);
  require(type == name, "the state is of " + type + ", the schedule is " + name);
}

int64_t step_count_at(const json& state, const char* key) {
  const auto& value = state.at(key);
  // Doubles cannot represent the integers next to either bound, so a number that passes this check fits. The value may
  // be a double because Python counts in doubles after step(epoch).
  const auto count = value.is_boolean() ? std::nan("") : value.get<double>();
  require(std::abs(count) <= static_cast<double>(kMaxSteps) && std::trunc(count) == count,
          std::string("the state's ") + key + " must be a whole number of steps, but is " + value.dump());
  return value.get<int64_t>();
}

PythonProgress python_progress(const json& state) {
  const auto& part = first_part(state);
  const auto& counted = state.contains("last_epoch") ? state : part;
  return {.last_epoch = step_count_at(counted, "last_epoch"),
          .last_lrs = state.at("_last_lr").get<std::vector<double>>(),
          .initial_lrs = part.at("base_lrs").get<std::vector<double>>()};
}

}  // namespace ddp::schedules
