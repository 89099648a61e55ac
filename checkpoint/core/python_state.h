// States as this library saves them, in the form that Python's load_state_dict() takes. No LibTorch.
#pragma once

#include <optional>
#include <string>

namespace ddp {

/// `text` as the JSON object that it is; nothing when it is anything else (an object of the program's own).
std::optional<std::string> json_object(const std::string& text);

/// The state of an LrScheduler or a ReduceLROnPlateau (a JSON object) as the state_dict() of Python's class, JSON too.
/// Other text is returned unchanged; another object is returned without the fields that only this library writes.
std::string python_schedule(const std::string& state);

/// An optimizer's groups (JSON, see saved_optimizer.h) with what Python's schedulers keep in them: initial_lr, and
/// OneCycleLR's bounds. Unchanged where the schedule is of another number of groups.
std::string with_schedule(const std::string& groups, const std::string& schedule_state);

}  // namespace ddp
