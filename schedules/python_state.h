// States of Python's schedulers: determines to which class a state_dict() belongs, because Python does not store that.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::schedules {

/// Throws std::invalid_argument unless `state` is of the schedule that Python calls `name`: by its "type", as this
/// library saves it, or by the hyper-parameters that a scheduler's state_dict() has. (LambdaLR's and MultiplicativeLR's
/// cannot be distinguished.)
void require_type(const nlohmann::json& state, const std::string& name);

/// More steps than any training has, and few enough to add to without overflow.
inline constexpr int64_t kMostSteps = int64_t{1} << 62;

/// The number of steps that `state` has under `key`, which may be below 0. Throws nlohmann::json::exception or
/// std::invalid_argument when it is not a whole number or its magnitude is above kMostSteps.
int64_t step_count_at(const nlohmann::json& state, const char* key);

/// What the optimizer's groups need in addition to the schedule's own state.
struct PythonProgress {
  int64_t last_epoch = 0;
  std::vector<double> last_lrs{};
  std::vector<double> initial_lrs{};
};

/// Reads it from a scheduler's state_dict(). Throws nlohmann::json::exception or std::invalid_argument if it is
/// missing.
PythonProgress python_progress(const nlohmann::json& state);

}  // namespace ddp::schedules
