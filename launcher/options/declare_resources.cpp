#include <algorithm>
#include <string>
#include <vector>

#include "launcher/options/declare_options.h"
#include "launcher/options/option_table.h"
#include "launcher/options/usage_error.h"

namespace launcher {
namespace {

bool is_gpu_name(const std::string& name) {
  if (name.starts_with("GPU-") || name.starts_with("MIG-")) return true;
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<std::string> parse_gpus(const std::string& text) {
  std::vector<std::string> gpus = split_at_commas(text);
  for (const std::string& gpu : gpus) {
    if (!is_gpu_name(gpu)) {
      throw UsageError("--gpus: expected numbers, such as 0,1, or UUIDs (GPU-..., MIG-...), got " + quoted_value(gpu) +
                       "; without --gpus all are used");
    }
    if (std::count(gpus.begin(), gpus.end(), gpu) > 1) throw UsageError("--gpus names " + gpu + " twice");
  }
  return gpus;
}

}  // namespace

void declare_resources(OptionTable& table, ResourceOptions& options) {
  using Binding = ResourceOptions::Binding;
  table.group("GPUs and CPUs");
  table.parsed({"--gpus LIST",
                "GPUs of this job: numbers or UUIDs; one rank per GPU unless `-n` is given",
                "As in `2,4,7`. Sets the ranks' CUDA_VISIBLE_DEVICES; checked against the driver if there is one.",
                {.unset = "all"}},
               joined(options.gpus, ","), [&](const std::string& text) { options.gpus = parse_gpus(text); });
  table.flag(torchrun_option({"--virtual_local_rank", "Each rank sees only one GPU, and `LOCAL_RANK=0`",
                              "One from `--gpus`, else from CUDA_VISIBLE_DEVICES, else from all."}),
             options.virtual_local_rank);
  table.choice({"--bind_to", "Give each rank its own share of the CPUs, or of its GPU's NUMA node",
                "`core`: its own contiguous share of the usable cores. `numa`: those of one NUMA node (its GPU's where "
                "known, else nodes in turn), whose memory is then preferred where the container allows that."},
               options.binding, {{"none", Binding::kNone}, {"core", Binding::kCore}, {"numa", Binding::kNuma}});
  table.choice(
      torchrun_option({"--numa_binding",
                       "torchrun's option: `node` and `socket` mean `--bind_to numa`, the others `--bind_to core`"}),
      options.binding,
      {{"off", Binding::kNone},
       {"node", Binding::kNuma},
       {"socket", Binding::kNuma},
       {"exclusive", Binding::kCore},
       {"core-complex", Binding::kCore}});
}

}  // namespace launcher
