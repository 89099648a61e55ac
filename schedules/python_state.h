// Reads the states of Python's schedulers. A state_dict() does not store its class, so the class is determined from the
// keys.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::schedules {

/// Throws std::invalid_argument unless `state` belongs to the schedule that Python calls `name`. This is determined
/// from "type", which this library saves, or from the hyper-parameters in the state_dict() of a Python scheduler. (The
/// states of LambdaLR and MultiplicativeLR cannot be distinguished.)
void require_type(const nlohmann::json& state, const std::string& name);

/// More steps than any training needs, but few enough that additions do not overflow.
inline constexpr int64_t kMaxSteps = int64_t{1} << 62;

/// Returns the number of steps that `state` has under `key`, which may be negative. Throws nlohmann::json::exception or
/// std::invalid_argument if it is not a whole number or its magnitude exceeds kMaxSteps.
int64_t step_count_at(const nlohmann::json& state, const char* key);

/// The values that the optimizer's groups need in addition to the schedule's own state.
struct PythonProgress {
  int64_t last_epoch = 0;
  std::vector<double> last_lrs{};
  std::vector<double> initial_lrs{};
};

/// Reads these values from the state_dict() of a scheduler. Throws nlohmann::json::exception or std::invalid_argument
/// if they are missing.
PythonProgress python_progress(const nlohmann::json& state);

}  // namespace ddp::schedules
