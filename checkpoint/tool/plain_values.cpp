#include "checkpoint/tool/plain_values.h"

#include "checkpoint/core/shallow_json.h"

namespace ddp::tool {

nlohmann::json plain_values(const TensorSource& source) {
  auto values = source.plain().empty() ? nlohmann::json::object() : parse_shallow_json(source.plain());
  if (const auto* manifest = source.manifest()) {
    values["step"] = manifest->step;
    values["world_size"] = manifest->world_size;
    if (!manifest->metrics.empty()) values["metrics"] = manifest->metrics;
  }
  if (!source.values().empty()) values["values"] = parse_shallow_json(source.values());
  return values;
}

}  // namespace ddp::tool
