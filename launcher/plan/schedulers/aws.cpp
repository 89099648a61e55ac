#include <nlohmann/json.hpp>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "launcher/plan/schedulers/systems.h"
#include "launcher/plan/schedulers/variables.h"

namespace launcher {
namespace {

std::vector<std::string> host_names(const std::string& text) {
  const auto list = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<std::string> hosts;
  const auto is_name = [](const auto& host) {
    return host.is_string() && !host.template get_ref<const std::string&>().empty();
  };
  if (!list.is_array() || list.empty() || !std::all_of(list.begin(), list.end(), is_name)) {
    throw std::invalid_argument(shown("SM_HOSTS", text) + R"(: expected a JSON list of names, ["algo-1","algo-2"])");
  }
  for (const auto& host : list) hosts.push_back(host.get<std::string>());
  std::sort(hosts.begin(), hosts.end());  // their order may differ between hosts
  return hosts;
}

}  // namespace

std::optional<ScheduledPlace> read_sagemaker(const ProcessContext& context) {
  const auto list = text_of(context, "SM_HOSTS");
  const auto own = text_of(context, "SM_CURRENT_HOST");
  if (!list || !own) return std::nullopt;
  const std::vector<std::string> hosts = host_names(*list);
  const auto here = std::find(hosts.begin(), hosts.end(), *own);
  if (here == hosts.end()) {
    throw std::invalid_argument(shown("SM_CURRENT_HOST", *own) + " is not in " + shown("SM_HOSTS", *list));
  }
  constexpr std::uint16_t kPort = 7777;  // of SageMaker's own training toolkit
  const std::string why = shown("SM_HOSTS", *list);
  return ScheduledPlace{.system = "SageMaker",
                        .nnodes = {{static_cast<int>(hosts.size()), why}},
                        .node_rank = {{static_cast<int>(here - hosts.begin()), shown("SM_CURRENT_HOST", *own)}},
                        .master_addr = {{hosts.front(), "the first of " + why}},
                        .master_port = {{kPort, "SageMaker's"}}};
}

std::optional<ScheduledPlace> read_aws_batch(const ProcessContext& context) {
  const std::string count = "AWS_BATCH_JOB_NUM_NODES";
  const std::string index = "AWS_BATCH_JOB_NODE_INDEX";
  if (!has(context, count) || !has(context, index)) return std::nullopt;
  ScheduledPlace place{.system = "AWS Batch"};
  read_nodes(context, count, index, place);
  const auto main = required(context, "AWS_BATCH_JOB_MAIN_NODE_INDEX", index, 0, place.nnodes->value - 1);
  // The main node, which all nodes can reach, becomes node 0; the nodes before it move up by one.
  int& rank = place.node_rank->value;
  if (rank == main.value) {
    rank = 0;
  } else if (rank < main.value) {
    ++rank;
  }
  place.node_rank->why += ", " + main.why;
  const char* address =
      "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS";  // the main node itself does not have this variable
  if (const auto text = text_of(context, address)) place.master_addr = sourced_text(address, *text);
  if (const auto job = text_of(context, "AWS_BATCH_JOB_ID")) {
    place.job_id =
        sourced_text("AWS_BATCH_JOB_ID", job->substr(0, job->find('#')));  // the node's number comes after it
  }
  return place;
}

}  // namespace launcher
