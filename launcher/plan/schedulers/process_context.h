// What schedulers are read from: variables, this host's name, files. A value, so that tests bring their own.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/schedulers/launcher_variables.h"

namespace launcher {

struct ProcessContext {
  ddp::VariableLookup variable{};
  std::string host_name{};
  // The content of a file; nothing when it cannot be read or is larger than any that schedulers write.
  std::function<std::optional<std::string>(const std::string& path)> file{};
};

// Those of this process.
ProcessContext process_context();

}  // namespace launcher
