#include "ddprun/comm/logging_data.h"

#include <iomanip>
#include <sstream>

namespace ddp {
namespace {

template <typename Value>
std::string list(const std::vector<Value>& values) {
  std::ostringstream text;
  for (size_t i = 0; i < values.size(); ++i) text << (i == 0 ? "" : ", ") << values[i];
  return text.str();
}

std::string milliseconds(std::chrono::nanoseconds time) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(3) << std::chrono::duration<double, std::milli>(time).count();
  return text.str();
}

}  // namespace

std::string DdpLoggingData::table() const {
  constexpr int kNameWidth = 26;
  constexpr int kTimeWidth = 15;
  std::ostringstream text;
  const auto row = [&](const char* name, const auto& value) {
    text << std::left << std::setw(kNameWidth) << name << value << '\n';
  };
  const auto yes = [](bool value) { return value ? "yes" : "no"; };
  row("rank", std::to_string(rank) + " of " + std::to_string(world_size));
  row("module", module_name);
  row("backend", backend);
  row("communication hook", comm_hook.empty() ? "none (all-reduce)" : comm_hook);
  row("iteration", iteration);
  row("parameters", std::to_string(parameter_tensors) + " tensors, " + std::to_string(parameter_bytes) + " bytes");
  row("bucket cap", std::to_string(bucket_cap_bytes) + " bytes" + (bucket_cap_settled ? "" : " (being measured)"));
  row("buckets", bucket_bytes.empty() ? "none" : list(bucket_bytes) + " bytes");
  row("buckets rebuilt", yes(has_rebuilt_buckets));
  row("buckets renewed", renewed_buckets);
  row("find unused parameters", yes(find_unused_parameters));
  row("unused parameters", unused_parameters.empty() ? "none" : list(unused_parameters));
  row("static graph", std::string(yes(static_graph)) + (can_set_static_graph ? " (could be set)" : ""));
  row("gradients in buckets", yes(gradient_as_bucket_view));
  row("broadcast buffers", yes(broadcast_buffers));
  text << std::left << std::setw(kNameWidth) << "times in ms" << std::right << std::setw(kTimeWidth) << "last step"
       << std::setw(kTimeWidth) << "average" << '\n';
  const auto times = [&](const char* name, std::chrono::nanoseconds one, std::chrono::nanoseconds mean) {
    text << std::left << std::setw(kNameWidth) << name << std::right << std::setw(kTimeWidth) << milliseconds(one)
         << std::setw(kTimeWidth) << milliseconds(mean) << '\n';
  };
  times("  forward", last.forward, average.forward);
  times("  backward", last.backward, average.backward);
  times("  communication", last.communication, average.communication);
  times("  both at once", last.overlap, average.overlap);
  if (!error.empty()) row("error", error);
  return text.str();
}

}  // namespace ddp
