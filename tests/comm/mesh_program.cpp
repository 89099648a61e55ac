// One rank of a job that mesh_test.py starts: mesh_program CASES RESULT. Its Python twin is mesh_program.py.
//
// CASES: {"shape", "names", "flatten", "rounds"}. Writes what the mesh says of this rank, and sums along all
// dimensions; those of "flatten" become one twice, the second time by the name "again".
#include <ATen/ops/full.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/device_mesh.h>
#include <ddprun/comm/report.h>

namespace {

using nlohmann::json;

json facts_of(const json& cases, const ddp::GroupHandle& group) {
  const std::vector<int> shape = cases.at("shape");
  std::vector<std::string> names = cases.at("names");
  ddp::DeviceMesh mesh = ddp::init_device_mesh(group, shape, names);
  json facts{{"coordinate", mesh.coordinate()}, {"ranks", mesh.ranks()}};
  const std::vector<std::string> flattened = cases.at("flatten");
  if (!flattened.empty()) {
    const ddp::DeviceMesh slice = mesh.slice(flattened);
    facts["slice"] = {{"coordinate", slice.coordinate()}, {"ranks", slice.ranks()}};
    if (flattened.size() > 1) names.push_back(slice.flatten().names().front());
    names.push_back(slice.flatten("again").names().front());
  }
  for (int round = 0; round < cases.at("rounds").get<int>(); ++round) {
    for (const std::string& name : names) {
      const ddp::GroupHandle along = mesh[name];
      const at::Tensor tensor = at::full({3}, static_cast<double>(group.rank() * (round + 1)), at::kDouble);
      ddp::all_reduce(tensor, along);
      const at::Tensor all = ddp::all_gather(at::full({1}, static_cast<double>(group.rank()), at::kDouble), along);
      facts[name].push_back(
          {{"rank", along.rank()},
           {"sum", tensor[0].item<double>()},
           {"gathered", std::vector<double>(all.data_ptr<double>(), all.data_ptr<double>() + all.numel())}});
    }
  }
  return facts;
}

bool is_running(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && text[name_end + 2] != 'Z' && text[name_end + 2] != 'X';
}

json rounds_beside_death(const json& cases, const ddp::GroupHandle& group) {
  ddp::DeviceMesh mesh = ddp::init_device_mesh(group, cases.at("shape").get<std::vector<int>>(), cases.at("names"));
  const ddp::GroupHandle along = mesh[cases.at("along")];
  const int killed = cases.at("killed");
  const bool dies_while_it_waits = cases.at("after").get<int>() < 0;
  const at::Tensor processes = ddp::all_gather(at::full({1}, static_cast<double>(getpid()), at::kDouble), group);
  std::thread killer;
  if (dies_while_it_waits && group.rank() == killed) {
    killer = std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // in which it begins to wait
      std::raise(SIGKILL);
    });
  } else if (dies_while_it_waits) {
    const auto process = static_cast<pid_t>(processes[killed][0].item<double>());
    while (is_running(process)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  int round = 0;
  try {
    for (; round < cases.at("rounds").get<int>(); ++round) {
      if (group.rank() == killed && round == cases.at("after").get<int>()) std::raise(SIGKILL);
      ddp::all_reduce(at::full({3}, 1.0), along);
    }
  } catch (const std::exception& error) {
    return {{"rounds", round}, {"error", error.what()}};
  }
  return {{"rounds", round}};
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::invalid_argument("two arguments are needed");
  std::ifstream file(argv[1]);
  const json cases = json::parse(file);
  const ddp::ProcessGroup group = ddp::init_process_group();
  std::ofstream(argv[2]) << (cases.contains("killed") ? rounds_beside_death(cases, group) : facts_of(cases, group));
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
